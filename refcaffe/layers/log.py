"""Log: the logarithm of shift + scale * x."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.sums import affine, check_size, in_double, scale
from refcaffe.side import Side

_check = Checker("log_layer.cpp")


def log_of_base(check: Checker, base: float, dtype: np.dtype[Any]) -> Any:
    """The logarithm of a layer's ``base``: exactly 1 for -1, which stands for e; others must be above 0."""
    if base == -1:
        return dtype.type(1)
    check.gt(base, 0, "base > 0", "base must be strictly positive.")
    log_base = dtype.type(np.log(np.float64(base)))
    text = f"result: log(base) = log({base:.6g}) = {log_base:.6g}"
    check(not np.isnan(log_base), "!isnan(log_base)", f"NaN {text}")
    check(not np.isinf(log_base), "!isinf(log_base)", f"Inf {text}")
    return log_base


@register("Log")
class Log(NeuronLayer):
    """log(shift + scale * x) / log(base); factors of 1 and a shift of 0 are left out."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param, real = self.param.log_param, self.dtype.type
        log_base = log_of_base(_check, param.base, self.dtype)
        with np.errstate(divide="ignore"):
            self.base_scale = real(1) / log_base
        text = f"result: 1/log(base) = 1/log({param.base:.6g}) = {self.base_scale:.6g}"
        _check(not np.isnan(self.base_scale), "!isnan(base_scale_)", f"NaN {text}")
        _check(not np.isinf(self.base_scale), "!isinf(base_scale_)", f"Inf {text}")
        self.scale, self.shift = real(param.scale), real(param.shift)
        self.backward_scale = self.scale / log_base

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        check_size(side, x.size)
        if self.scale != 1 or self.shift != 0:
            side.copy(y, x)
            x = y
        side.xp.log(affine(side.xp, x, self.scale, self.shift, y), out=y, **in_double(side.xp))
        if self.base_scale != 1:
            scale(y, self.base_scale)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        x, dy, dx = side.data(bottom[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        check_size(side, x.size)
        side.copy(dx, x)
        side.xp.divide(1, affine(side.xp, dx, self.scale, self.shift, dx), out=dx)
        if self.backward_scale != 1:
            scale(dx, self.backward_scale)
        side.xp.multiply(dy, dx, out=dx)  # in place, dx has overwritten dy by now, as it has upstream
