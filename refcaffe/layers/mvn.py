"""MVN: mean 0, and variance 1 if asked for, of each channel or each image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.sums import scale
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_check = Checker("mvn_layer.cpp")


@register("MVN")
class MVN(Layer):
    """The top has four axes. eps is added to the standard deviation; its diff always goes down."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.ones = Blob(dtype=self.dtype)
        self.deviation = Blob(dtype=self.dtype)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        first = bottom[0]
        param = self.param.mvn_param
        top[0].reshape(first.num, first.channels, first.height, first.width)
        self.rows = first.num if param.across_channels else first.num * first.channels
        # Upstream divides by 0 here, and dies.
        _check.gt(first.count, 0, "bottom[0]->count() > 0", "An empty blob has no mean.")
        self.length = first.count // self.rows
        real: Any = self.dtype.type
        self.one_over = real(1 / self.length)
        self.deviation.reshape(self.rows, 1)
        self.ones.reshape(self.length)
        self.ones.mutable_cpu_data().fill(1)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x, y = self._matrix(side.data(bottom[0])), self._matrix(side.mutable_data(top[0]))
        xp.subtract(x, self._sums(side, x) * self.one_over, out=y)
        if self.param.mvn_param.normalize_variance:
            deviation = side.mutable_data(self.deviation)
            squares = xp.matmul(y[:, None, :], y[:, :, None])[:, 0]
            xp.sqrt(squares * self.one_over, out=deviation)
            deviation += self.dtype.type(self.param.mvn_param.eps)
            y /= deviation

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        xp = side.xp
        dy, y = self._matrix(side.diff(top[0])), self._matrix(side.data(top[0]))
        side.data(bottom[0])  # upstream asks for it too
        dx = self._matrix(side.mutable_diff(bottom[0]))
        if self.param.mvn_param.normalize_variance:
            xp.multiply(y, dy, out=dx)
            xp.multiply(y, self._sums(side, dx), out=dx)
            dx += self._sums(side, dy)
            scale(dx, -self.one_over)
            dx += dy
            dx /= side.data(self.deviation)
        else:
            xp.subtract(dy, self._sums(side, dy) * self.one_over, out=dx)

    def _matrix(self, array: Any) -> Any:
        return array.reshape(self.rows, self.length)

    def _sums(self, side: Side, matrix: Any) -> Any:
        """The rows' sums, as a column."""
        return side.xp.matmul(matrix, side.data(self.ones))[:, None]
