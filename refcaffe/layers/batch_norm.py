"""BatchNorm: each channel to mean 0 and variance 1, by the batch's statistics or by running ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.kernels import planes
from refcaffe.kernels.compiled import copied
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.broadcast import plane_sums
from refcaffe.layers.sums import scale
from refcaffe.proto import caffe_pb2
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import HOST, Side

_check = Checker("batch_norm_layer.cpp")


@register("BatchNorm")
class BatchNorm(Layer):
    """Parameters: decaying sums of means, of variances, and of their weights. Its diff always goes down."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.mean, self.deviation, self.normed = (Blob(dtype=self.dtype) for _ in range(3))
        self.image_ones, self.place_ones = Blob(dtype=self.dtype), Blob(dtype=self.dtype)
        self.planes = (-1, -1, -1)

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.batch_norm_param
        self.use_running = self.phase == caffe_pb2.TEST
        if param.HasField("use_global_stats"):
            self.use_running = param.use_global_stats
        self.fraction = self.dtype.type(param.moving_average_fraction)
        self.eps = self.dtype.type(param.eps)
        self.channels = 1 if bottom[0].num_axes == 1 else bottom[0].dim(1)
        if not self.blobs:
            self.blobs = [Blob((n,), self.dtype) for n in (self.channels, self.channels, 1)]
            for blob in self.blobs:
                blob.mutable_cpu_data().fill(0)
        # The statistics are no parameters to learn.
        for i in range(len(self.blobs)):
            if len(self.param.param) == i:
                self.param.param.add().lr_mult = 0
            else:
                text = "Cannot configure batch normalization statistics as layer parameters."
                expression = "this->layer_param_.param(i).lr_mult() == 0.f"
                _check.eq(self.param.param[i].lr_mult, 0.0, expression, text)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        first = bottom[0]
        if first.num_axes >= 1:
            _check.eq(first.dim(1), self.channels, "bottom[0]->shape(1) == channels_")
        top[0].reshape_like(first)
        self.mean.reshape(self.channels)
        self.deviation.reshape(self.channels)
        self.normed.reshape_like(first)
        images = first.dim(0)
        # Upstream divides by 0 here, and dies.
        _check.gt(first.count, 0, "bottom[0]->count() > 0", "An empty blob has no mean.")
        planes = (images, self.channels, first.count // (images * self.channels))
        if planes != self.planes:
            for ones, size in ((self.image_ones, images), (self.place_ones, planes[2])):
                ones.reshape(size)
                ones.mutable_cpu_data().fill(1)
        self.planes = planes

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x, y = side.data(bottom[0]).reshape(self.planes), side.mutable_data(top[0]).reshape(self.planes)
        if side.gpu:
            side.copy(y, x)
        mean, deviation = side.mutable_data(self.mean), side.mutable_data(self.deviation)
        real: Any = self.dtype.type
        one_over = real(1 / (self.planes[0] * self.planes[2]))
        if self.use_running:
            weight = self.blobs[2].cpu_data()[0]
            factor = 1 / weight if weight != 0 else weight
            for statistic, blob in ((mean, self.blobs[0]), (deviation, self.blobs[1])):
                xp.copyto(statistic, side.data(blob).reshape(-1))
                scale(statistic, factor)
        if not side.gpu:
            self._normalize_on_host(x, y, mean, deviation, one_over)
            return
        if not self.use_running:
            xp.copyto(mean, self._sums(side, x, one_over))
        xp.subtract(x, mean[:, None], out=y)
        if not self.use_running:
            normed = side.mutable_data(self.normed).reshape(self.planes)
            xp.multiply(y, y, out=normed)
            xp.copyto(deviation, self._sums(side, normed, one_over))
            self._move_statistics(side, mean, deviation)
        self._variance_to_deviation(xp, deviation)
        y /= deviation[:, None]
        side.copy(side.mutable_data(self.normed), y)  # for backward: a layer in place may overwrite the top
        # Upstream spreads statistics by products with ones.
        side.data(self.image_ones)
        side.data(self.place_ones)

    def _normalize_on_host(self, x: Any, y: Any, mean: Any, deviation: Any, one_over: Any) -> None:
        """The same in as few passes over memory as there can be: some channels at a time, which stay in the cache."""
        if self.use_running:
            self._variance_to_deviation(np, deviation)
            planes.each_plane(planes.normalize, x, y, (), (mean, deviation))
            return
        place_ones, image_ones = HOST.data(self.place_ones), HOST.data(self.image_ones)
        normed, variance = HOST.mutable_data(self.normed).reshape(self.planes), np.empty_like(deviation)

        def some(channels: slice) -> None:
            center, spread = mean[channels], deviation[channels]
            np.matmul(image_ones, planes.channel_sums(x[:, channels], place_ones) * one_over, out=center)
            squares = planes.channel_sums_of(planes.squared_distance, (x,), channels, (center,), place_ones)
            np.matmul(image_ones, squares * one_over, out=variance[channels])
            spread[...] = variance[channels]
            self._variance_to_deviation(np, spread)
            copied(x[:, channels], y[:, channels])
            planes.normalize_and_keep(y, normed, channels.start, center, spread)

        planes.for_channels(self.planes, some)
        self._move_statistics(HOST, mean, variance)

    def _variance_to_deviation(self, xp: Any, variance: Any) -> None:
        variance += self.eps
        xp.sqrt(variance, out=variance)

    def _move_statistics(self, side: Side, mean: Any, variance: Any) -> None:
        """weight, means, variances = the old ones times a fraction + those of this batch."""
        weight = self.blobs[2].mutable_cpu_data()
        real: Any = self.dtype.type
        weight[0] = weight[0] * self.fraction + real(1)
        values = self.planes[0] * self.planes[2]
        unbiased = real(values) / real(values - 1) if values > 1 else real(1)
        for blob, statistic in ((self.blobs[0], mean), (self.blobs[1], variance * unbiased)):
            moving = side.mutable_data(blob)
            scale(moving, self.fraction)
            moving += statistic.reshape(moving.shape)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        xp = side.xp
        dy = side.diff(top[0])
        if side.gpu and top[0] is bottom[0]:
            kept = side.mutable_diff(self.normed)
            side.copy(kept, dy)
            dy = kept
        dy, dx = dy.reshape(self.planes), side.mutable_diff(bottom[0]).reshape(self.planes)
        deviation = side.data(self.deviation)
        real: Any = self.dtype.type
        factor = real(-1 / (self.planes[0] * self.planes[2]))
        if self.use_running:
            xp.divide(dy, deviation[:, None], out=dx)
            return
        y = side.data(self.normed).reshape(self.planes)
        if not side.gpu:
            self._diff_on_host(dy, dx, y, deviation, factor)
            return
        work = xp.multiply(y, dy, out=dx)
        products, total = self._sums(side, work, 1), self._sums(side, dy, 1)
        xp.multiply(y, products[:, None], out=work)
        work += total[:, None]
        work *= factor
        work += dy
        xp.divide(work, deviation[:, None], out=dx)

    def _diff_on_host(self, dy: Any, dx: Any, y: Any, deviation: Any, factor: Any) -> None:
        place_ones, image_ones = HOST.data(self.place_ones), HOST.data(self.image_ones)

        def some(channels: slice) -> None:
            products = planes.channel_sums_of(planes.channel_product, (y, dy), channels, (), place_ones)
            total = np.matmul(image_ones, planes.channel_sums(dy[:, channels], place_ones))
            copied(dy[:, channels], dx[:, channels])
            values = np.matmul(image_ones, products), total, deviation[channels], factor
            planes.normalize_diff(dx, y, channels.start, *values)

        planes.for_channels(self.planes, some)

    def _sums(self, side: Side, array: Any, factor: Any) -> Any:
        """Each channel's sum over places, times a factor, over images: (N, C, places) to (C,)."""
        planes = plane_sums(side, array, side.data(self.place_ones))
        return side.xp.matmul(side.data(self.image_ones), planes * factor)
