"""Exp: base ** (shift + scale * x)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.log import log_of_base
from refcaffe.layers.sums import affine, check_size, in_double, scale
from refcaffe.side import Side

_check = Checker("exp_layer.cpp")


@register("Exp")
class Exp(NeuronLayer):
    """outer * exp(inner * x): outer = base ** shift, inner = scale * log(base). Factors of 1 are left out."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param, real = self.param.exp_param, self.dtype.type
        self.inner = log_of_base(_check, param.base, self.dtype) * real(param.scale)
        self.outer = real(1)
        if param.shift != 0:
            with np.errstate(over="ignore"):
                shift = np.float64(param.shift)
                self.outer = real(np.exp(shift) if param.base == -1 else np.float64(param.base) ** shift)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        check_size(side, x.size)
        side.xp.exp(affine(side.xp, x, self.inner, 0, y), out=y, **in_double(side.xp))
        if self.outer != 1:
            scale(y, self.outer)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        y, dy, dx = side.data(top[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        check_size(side, y.size)
        side.xp.multiply(y, dy, out=dx)
        if self.inner != 1:
            scale(dx, self.inner)
