"""Reduction: all axes from one on become one number: sum, mean, sum of absolute values or of squares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.sums import scale, sign
from refcaffe.proto.caffe_pb2 import LayerParameter, ReductionParameter
from refcaffe.side import HOST, Side


@register("Reduction")
class Reduction(Layer):
    """The result is multiplied by ``coeff``. Sums are written, and their diffs read, by the host."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.operation = param.reduction_param.operation
        self.plain = self.operation in (ReductionParameter.SUM, ReductionParameter.MEAN)
        self.ones = Blob(dtype=self.dtype)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        axis = bottom[0].canonical_axis(self.param.reduction_param.axis)
        top[0].reshape(bottom[0].shape[:axis])
        self.matrix = (bottom[0].count_range(0, axis), bottom[0].count_range(axis))
        if self.plain:
            self.ones.reshape(self.matrix[1])
            self.ones.mutable_cpu_data().fill(1)
        real: Any = self.dtype.type
        self.coeff = real(self.param.reduction_param.coeff)
        if self.operation == ReductionParameter.MEAN:
            self.coeff /= real(self.matrix[1])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x, y = side.data(bottom[0]).reshape(self.matrix), HOST.mutable_data(top[0]).reshape(-1)
        if self.plain:
            sums = xp.matmul(x, side.data(self.ones))
        elif self.operation == ReductionParameter.ASUM:
            sums = xp.sum(xp.abs(x), axis=1)
        else:
            sums = xp.matmul(x[:, None, :], x[:, :, None])[:, 0, 0]
        y[...] = side.host(sums)
        if self.coeff != 1:
            scale(side.mutable_data(top[0]), self.coeff)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        xp = side.xp
        x = None if self.plain else side.data(bottom[0]).reshape(self.matrix)
        factor = xp.asarray(HOST.diff(top[0]).reshape(-1) * self.coeff)[:, None]
        dx = side.mutable_diff(bottom[0]).reshape(self.matrix)
        if x is None:
            xp.copyto(dx, factor)
        elif self.operation == ReductionParameter.ASUM:
            sign(side, x, dx)
            dx *= factor
        else:
            xp.multiply(x, 2 * factor, out=dx)
        # Upstream sets and scales by 0 to +0, whatever was there.
        xp.copyto(dx, 0, where=factor == 0)
