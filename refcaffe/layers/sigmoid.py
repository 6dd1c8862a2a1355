"""Sigmoid: 1 / (1 + exp(-x))."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.engine import check_engine
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side


@register("Sigmoid")
class Sigmoid(NeuronLayer):
    """Computed as 0.5 * tanh(0.5 * x) + 0.5, in double."""

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.sigmoid_param.engine)
        super().__init__(param, dtype)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        for x, y in blocks(side, side.data(bottom[0]), side.mutable_data(top[0])):
            wide = xp.multiply(x, 0.5, dtype=np.float64)
            xp.tanh(wide, out=wide)
            wide *= 0.5
            wide += 0.5
            y[...] = wide

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        xp = side.xp
        arrays = side.data(top[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        for y, dy, dx in blocks(side, *arrays):
            # On the host the difference is a double, on a device it is not.
            rest = 1 - y if side.gpu else xp.subtract(1, y, dtype=np.float64)
            xp.multiply(dy * y, rest, out=dx, casting="same_kind")
