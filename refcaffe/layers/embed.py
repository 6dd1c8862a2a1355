"""Embed: for each index in the bottom, a row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.kernels.rows import add_rows
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_check = Checker("embed_layer.cpp")


@register("Embed")
class Embed(Layer):
    """The weight is (input_dim, num_output). Indices are truncated toward zero; they get no gradient."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.ones = Blob(dtype=self.dtype)  # one per index

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.embed_param
        self.outputs, self.inputs = to_int(param.num_output), to_int(param.input_dim)
        _check.gt(self.outputs, 0, "N_ > 0", "EmbedLayer num_output must be positive.")
        _check.gt(self.inputs, 0, "K_ > 0", "EmbedLayer input_dim must be positive.")
        if not self.blobs:
            stream = context.current().stream
            self.blobs = [Blob((self.inputs, self.outputs), self.dtype)]
            fill(self.blobs[0], param.weight_filler, stream)
            if param.bias_term:
                self.blobs.append(Blob((self.outputs,), self.dtype))
                fill(self.blobs[1], param.bias_filler, stream)
        self.param_propagate_down = [True] * len(self.blobs)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.rows = bottom[0].count
        top[0].reshape(*bottom[0].shape, self.outputs)
        if self.param.embed_param.bias_term:
            self.ones.reshape(self.rows)
            self.ones.mutable_cpu_data().fill(1)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        index = self._index(side, bottom[0])
        weight = side.data(self.blobs[0]).reshape(self.inputs, self.outputs)
        y = side.mutable_data(top[0]).reshape(self.rows, self.outputs)
        side.xp.take(weight, index, axis=0, out=y)
        if self.param.embed_param.bias_term:
            side.data(self.ones)
            y += side.data(self.blobs[1]).reshape(self.outputs)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        _check(not propagate_down[0], "!propagate_down[0]", "Can't backpropagate to EmbedLayer input.")
        if self.wants_param_diff(0):
            dy, index = side.diff(top[0]), self._index(side, bottom[0])
            weight_diff = side.mutable_diff(self.blobs[0]).reshape(self.inputs, self.outputs)
            add_rows(side, index, dy.reshape(self.rows, self.outputs), weight_diff)
        if self.param.embed_param.bias_term and self.wants_param_diff(1):
            dy = side.diff(top[0]).reshape(self.rows, self.outputs)
            bias_diff = side.mutable_diff(self.blobs[1]).reshape(self.outputs)
            bias_diff += side.xp.matmul(side.data(self.ones), dy)

    def _index(self, side: Side, bottom: Blob) -> Any:
        """The indices, int64. Those outside the table are refused, as only upstream's debug build does."""
        values = side.data(bottom).reshape(-1)
        good = (values > -1) & (values < self.inputs)
        if context.current_build().debug:
            good &= values == side.xp.trunc(values)
        if not good.all():
            value = float(values[~good][0])
            index = int(value) if np.isfinite(value) else -(2**31)
            _check.ge(index, 0, "index >= 0")
            _check.lt(index, self.inputs, "index < K_")
            _check.eq(index, value, "static_cast<Dtype>(index) == bottom_data[n]", "non-integer input")
        return values.astype(np.int64)
