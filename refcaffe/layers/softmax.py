"""Softmax along one axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.engine import check_engine
from refcaffe.layers.sums import check_size, in_double, sum_in_order
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

FLT_MAX = float(np.finfo(np.float32).max)


@register("Softmax")
class Softmax(Layer):
    """exp(x - max) / sum; the bottom's diff is written whatever ``propagate_down`` says."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.softmax_param.engine)
        super().__init__(param, dtype)
        self.scale = Blob(dtype=self.dtype)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis = bottom[0].canonical_axis(self.param.softmax_param.axis)
        top[0].reshape_like(bottom[0])
        shape = bottom[0].shape
        self.scale.reshape(*shape[:axis], 1, *shape[axis + 1 :])
        self.planes = (bottom[0].count_range(0, axis), shape[axis], bottom[0].count_range(axis + 1))

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x = side.data(bottom[0]).reshape(self.planes)
        y = side.mutable_data(top[0]).reshape(self.planes)
        scale = self._scale(side)
        check_size(side, y.size)
        if side.gpu:
            side.copy(y, x)
            # Not-a-numbers and minus infinity are never the largest.
            scale[:, 0] = xp.max(xp.fmax(x, self.dtype.type(-FLT_MAX)), axis=1)
        else:
            xp.max(x, axis=1, keepdims=True, out=scale)
        xp.subtract(x, scale, out=y)
        xp.exp(y, out=y, **in_double(xp))
        if side.gpu:
            scale[:, 0] = sum_in_order(xp, y, 1)
        else:
            xp.sum(y, axis=1, keepdims=True, out=scale)
        y /= scale

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        xp = side.xp
        dy, y = side.diff(top[0]).reshape(self.planes), side.data(top[0]).reshape(self.planes)
        dx = side.mutable_diff(bottom[0]).reshape(self.planes)
        scale = self._scale(side)
        scale[:, 0] = sum_in_order(xp, dy * y, 1) if side.gpu else xp.einsum("oci,oci->oi", dy, y)
        if side.gpu:
            side.copy(dx, dy)
        xp.subtract(dy, scale, out=dx)
        dx *= y

    def _scale(self, side: Side) -> Any:
        return side.mutable_data(self.scale).reshape(self.planes[0], 1, self.planes[2])
