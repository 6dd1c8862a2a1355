"""BNLL: log(1 + exp(x))."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.sums import in_double
from refcaffe.side import Side

THRESHOLD = 50


@register("BNLL")
class BNLL(NeuronLayer):
    """The exponential is of the layer's type, the rest is double."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        for x, y in blocks(side, side.data(bottom[0]), side.mutable_data(top[0])):
            e = xp.absolute(x)
            xp.negative(e, out=e)
            xp.exp(e, out=e, **in_double(xp))
            wide = 1 + e.astype(np.float64)
            xp.log(wide, out=wide)
            wide += xp.maximum(x, 0)
            y[...] = wide

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        xp = side.xp
        arrays = side.data(bottom[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        for x, dy, dx in blocks(side, *arrays):
            e = xp.minimum(x, THRESHOLD)
            xp.exp(e, out=e, **in_double(xp))
            xp.divide(dy * e, 1 + e.astype(np.float64), out=dx, casting="same_kind")
