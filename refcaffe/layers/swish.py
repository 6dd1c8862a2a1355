"""Swish: x * sigmoid(beta * x)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.sigmoid import Sigmoid
from refcaffe.layers.sums import check_size, scale
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side


@register("Swish")
class Swish(NeuronLayer):
    """With an inner Sigmoid layer. In backward, 1 - beta * y and what it is multiplied with are double on the host."""

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        inner = LayerParameter()
        inner.CopyFrom(param)
        inner.ClearField("sigmoid_param")  # its engine is not looked at
        self.sigmoid = Sigmoid(inner, dtype)
        self.sigmoid_input, self.sigmoid_output = Blob(dtype=self.dtype), Blob(dtype=self.dtype)
        self.beta = self.dtype.type(param.swish_param.beta)

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.sigmoid.set_up([self.sigmoid_input], [self.sigmoid_output])

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.sigmoid_input.reshape_like(bottom[0])
        self.sigmoid.reshape([self.sigmoid_input], [self.sigmoid_output])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, inner = side.data(bottom[0]), side.mutable_data(self.sigmoid_input)
        y = side.mutable_data(top[0])
        side.copy(inner, x)
        scale(inner, self.beta)
        self.sigmoid.forward([self.sigmoid_input], [self.sigmoid_output])
        check_size(side, x.size)
        side.xp.multiply(x, side.data(self.sigmoid_output), out=y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        xp = side.xp
        arrays = side.data(top[0]), side.diff(top[0]), side.data(self.sigmoid_output)
        for y, dy, s, dx in blocks(side, *arrays, side.mutable_diff(bottom[0])):
            part = self.beta * y
            wide = 1 - part if side.gpu else xp.subtract(1, part, dtype=np.float64)
            wide *= s
            wide += part
            wide *= dy
            dx[...] = wide
