"""InnerProduct: a matrix product with all axes from one on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.kernels.products import product
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import HOST, Side

_check = Checker("inner_product_layer.cpp")


@register("InnerProduct")
class InnerProduct(Layer):
    """top (M, N) = bottom (M, K) · weightᵀ + bias. The weight is (N, K), or (K, N) with ``transpose``."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.ones = Blob(dtype=self.dtype)  # one per row of the top

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.inner_product_param
        self.outputs = to_int(param.num_output)
        self.inputs = bottom[0].count_range(bottom[0].canonical_axis(param.axis))
        if not self.blobs:
            stream = context.current().stream
            shape = (self.outputs, self.inputs)
            self.blobs = [Blob(shape[::-1] if param.transpose else shape, self.dtype)]
            fill(self.blobs[0], param.weight_filler, stream)
            if param.bias_term:
                self.blobs.append(Blob((self.outputs,), self.dtype))
                fill(self.blobs[1], param.bias_filler, stream)
        self.param_propagate_down = [True] * len(self.blobs)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis = bottom[0].canonical_axis(self.param.inner_product_param.axis)
        text = "Input size incompatible with inner product parameters."
        _check.eq(self.inputs, bottom[0].count_range(axis), "K_ == new_K", text)
        self.rows = bottom[0].count_range(0, axis)
        top[0].reshape(*bottom[0].shape[:axis], self.outputs)
        if self.param.inner_product_param.bias_term:
            self.ones.reshape(self.rows)
            self.ones.mutable_cpu_data().fill(1)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x = side.data(bottom[0]).reshape(self.rows, self.inputs)
        y = side.mutable_data(top[0]).reshape(self.rows, self.outputs)
        weight = side.data(self.blobs[0])
        forgets = side.gpu and self.rows == 1  # upstream, that the weight may be transposed
        weight = weight.reshape(self.outputs, self.inputs) if forgets else self._weight(weight)
        product(side, x[None], weight.T[None], y[None])
        if self.param.inner_product_param.bias_term:
            (HOST if self.rows == 1 else side).data(self.ones)
            y += side.data(self.blobs[1]).reshape(self.outputs)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        xp = side.xp
        param = self.param.inner_product_param
        if self.wants_param_diff(0):
            dy, x = self._rows(side.diff(top[0])), side.data(bottom[0]).reshape(self.rows, self.inputs)
            a, b = (x, dy) if param.transpose else (dy, x)
            shape = (1, a.shape[1], b.shape[1])
            product(side, a.T[None], b[None], side.mutable_diff(self.blobs[0]).reshape(shape), add=True)
        if param.bias_term and self.wants_param_diff(1):
            dy = self._rows(side.diff(top[0]))
            bias_diff = side.mutable_diff(self.blobs[1]).reshape(self.outputs)
            bias_diff += xp.matmul(side.data(self.ones), dy)
        if propagate_down[0]:
            dy = self._rows(side.diff(top[0]))
            weight = self._weight(side.data(self.blobs[0]))
            dx = side.mutable_diff(bottom[0]).reshape(1, self.rows, self.inputs)
            product(side, dy[None], weight[None], dx)

    def _rows(self, array: Any) -> Any:
        return array.reshape(self.rows, self.outputs)

    def _weight(self, array: Any) -> Any:
        """The weight as (N, K)."""
        if self.param.inner_product_param.transpose:
            return array.reshape(self.inputs, self.outputs).T
        return array.reshape(self.outputs, self.inputs)
