"""Bias: a blob, learned or given, added along some of the bottom's axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.kernels import planes
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.broadcast import Along, fill_ones, plane_sums
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_along = Along("bias", "axis", Checker("bias_layer.cpp"))


@register("Bias")
class Bias(Layer):
    """The second bottom is the bias, if there is one."""

    min_bottoms = 1
    max_bottoms = 2
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.ones = Blob(dtype=self.dtype)

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        if len(bottom) == 1 and not self.blobs:
            param = self.param.bias_param
            shape = _along.parameter_shape(bottom[0], param.axis, param.num_axes)
            self.blobs = [Blob(shape, self.dtype)]
            fill(self.blobs[0], param.filler, context.current().stream)
        self.param_propagate_down = [True] * len(self.blobs)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.planes = _along.planes(bottom[0], self._bias(bottom), self.param.bias_param.axis)
        if bottom[0] is not top[0]:
            top[0].reshape_like(bottom[0])
        fill_ones(self.ones, self.planes[2])

    def _bias(self, bottom: Blobs) -> Blob:
        return bottom[1] if len(bottom) > 1 else self.blobs[0]

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        bias = side.data(self._bias(bottom)).reshape(-1, 1)
        y = side.mutable_data(top[0]).reshape(self.planes)
        x = y if bottom[0] is top[0] else side.data(bottom[0]).reshape(self.planes)
        if side.gpu:
            side.xp.add(x, bias, out=y)
        else:
            planes.each_plane(planes.shift, x, y, (), (bias.reshape(-1),))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[0] and bottom[0] is not top[0]:
            dy = side.diff(top[0])
            side.copy(side.mutable_diff(bottom[0]), dy)
        learned = len(bottom) == 1
        if self.wants_param_diff(0) if learned else propagate_down[1]:
            dy = side.diff(top[0]).reshape(self.planes)
            bias_diff = side.mutable_diff(self._bias(bottom)).reshape(-1)
            if not learned:
                bias_diff.fill(0)
            bias_diff += plane_sums(side, dy, side.data(self.ones)).sum(axis=0)
