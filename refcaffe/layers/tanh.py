"""TanH: the hyperbolic tangent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.kernels.tanh import tanh_float
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.engine import check_engine
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side


@register("TanH")
class TanH(NeuronLayer):
    """The gradient is 1 - y * y."""

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.tanh_param.engine)
        super().__init__(param, dtype)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        if isinstance(x, np.ndarray) and self.dtype == np.float32:
            tanh_float(x.reshape(-1), y.reshape(-1))
        else:
            side.xp.tanh(x, out=y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        arrays = side.data(top[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        for y, dy, dx in blocks(side, *arrays):
            factor = y * y
            side.xp.subtract(1, factor, out=factor)
            side.xp.multiply(dy, factor, out=dx)
