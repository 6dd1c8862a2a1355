"""ReLU: max(x, 0) + slope * min(x, 0)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.kernels.relu import relu_backward, relu_forward
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import each_block
from refcaffe.layers.engine import check_engine
from refcaffe.layers.sums import choose
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side


@register("ReLU")
class ReLU(NeuronLayer):
    """Both terms are always added up: -infinity gives NaN at slope 0. A device takes x or slope * x: -0 below 0."""

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.relu_param.engine)
        super().__init__(param, dtype)
        self.slope = self.dtype.type(param.relu_param.negative_slope)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        def formula(x: Any, y: Any) -> None:
            if side.gpu:
                choose(x > 0, x, x * self.slope, y)
            else:
                relu_forward(x, self.slope, y)

        each_block(side, formula, side.data(bottom[0]), side.mutable_data(top[0]))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return

        def formula(x: Any, dy: Any, dx: Any) -> None:
            if side.gpu:
                factor = (x <= 0) * self.slope
                factor += x > 0
                side.xp.multiply(dy, factor, out=dx)
            else:
                relu_backward(x, dy, self.slope, dx)

        each_block(side, formula, side.data(bottom[0]), side.diff(top[0]), side.mutable_diff(bottom[0]))
