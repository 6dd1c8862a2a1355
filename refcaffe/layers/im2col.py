"""Im2col: the columns of each image as channels."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import ModuleType

from refcaffe.checks import Checker
from refcaffe.kernels import im2col as host_kernels
from refcaffe.kernels import im2col_device as device_kernels
from refcaffe.kernels.im2col import column_map
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.window import device_tables, read_window
from refcaffe.side import Side

_check = Checker("im2col_layer.cpp")


@register("Im2col")
class Im2col(Layer):
    """The top's channels are channels times kernel positions; its diff always goes down."""

    exact_bottoms = 1
    exact_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.convolution_param
        self.axis = bottom[0].canonical_axis(param.axis)
        axes = bottom[0].num_axes - self.axis - 1
        _check.ge(axes, 1, "num_spatial_axes_ >= 1")
        self.window = read_window(param, axes, _check, ");")
        self.tables = device_tables(self.window, param.force_nd_im2col)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        window, shape = self.window, bottom[0].shape
        axes = len(window.kernel)
        size = tuple(bottom[0].dim(self.axis + 1 + i) for i in range(axes))
        expression = "bottom[0]->shape().size() - channel_axis_ == num_spatial_axes_ + 1"
        _check.eq(len(shape) - self.axis, axes + 1, expression)
        grid = window.positions(size)
        channels = shape[self.axis]
        top[0].reshape(*shape[: self.axis], channels * prod(window.kernel), *grid)
        # The images' columns lie one after the other, like those of the channels of one big image.
        channels *= bottom[0].count_range(0, self.axis)
        steps = (window.kernel, window.stride, window.pad, window.dilation)
        self.columns = column_map(channels, size, grid, *steps)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        im2col = self._kernels(side, bottom, top).im2col
        im2col(side, self.columns, side.data(bottom[0]), side.mutable_data(top[0]))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        col2im = self._kernels(side, bottom, top).col2im
        col2im(side, self.columns, side.diff(top[0]), side.mutable_diff(bottom[0]))

    def _kernels(self, side: Side, bottom: Blobs, top: Blobs) -> ModuleType:
        """The module of a side's kernels, with what they look up brought there."""
        if not side.gpu:
            return host_kernels
        if self.tables is not None:
            self.tables.bring(side, bottom[0], top[0])
        return device_kernels
