"""What Convolution and Deconvolution share: parameters, shapes, and the products with columns.

One turns an *image* into a *grid* that has a value at each position of the window, the other a grid into an
image; the backward pass of each does what the other's forward pass does. Weights are (grid channels,
image channels / group, *kernel) in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.kernels.convolution import Products
from refcaffe.kernels.im2col import Columns, column_map
from refcaffe.kernels.im2col_device import col2im, im2col
from refcaffe.kernels.products import product
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer
from refcaffe.layers.broadcast import plane_sums
from refcaffe.layers.engine import check_engine
from refcaffe.layers.window import Window, device_tables, read_window
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_check = Checker("base_conv_layer.cpp")


class BaseConvolution(Layer):
    """Any number of bottoms of one shape, each with its top; axes before ``axis`` count images."""

    min_bottoms = 1
    min_tops = 1
    equal_bottoms_tops = True

    bottom_is_image: ClassVar[bool]

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.convolution_param.engine)
        super().__init__(param, dtype)
        self.columns = Blob(dtype=self.dtype)  # of one image
        self.column_map: Columns | None = None  # a point's columns are the image itself
        self.ones = Blob(dtype=self.dtype)  # one per place of a channel of the top
        self.image_dims = Blob(dtype=np.int32)
        self.shaped_for: Any = None  # sizes of an image and of its grid

    def output_shape(self, window: Window, size: Sequence[int]) -> tuple[int, ...]:
        """The spatial shape of the tops for that of the bottoms."""
        raise NotImplementedError

    # --- set-up

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.convolution_param
        self.axis = bottom[0].canonical_axis(param.axis)
        axes = bottom[0].num_axes - self.axis - 1
        self.window = read_window(param, axes, _check, ").")
        self.tables = device_tables(self.window, param.force_nd_im2col)
        self.channels = bottom[0].shape[self.axis]
        self.outputs = to_int(param.num_output)
        _check.gt(self.outputs, 0, "num_output_ > 0")
        self.group = to_int(param.group)
        _check(self.group, "group_ != 0")  # upstream divides by it, and dies
        _check.eq(self.channels % self.group, 0, "channels_ % group_ == 0")
        text = "Number of output should be multiples of group."
        _check.eq(self.outputs % self.group, 0, "num_output_ % group_ == 0", text)
        image_first = (self.channels, self.outputs)
        self.image_channels, self.grid_channels = image_first if self.bottom_is_image else image_first[::-1]
        weight_shape = (self.grid_channels, self.image_channels // self.group, *self.window.kernel)
        bias_shape = (self.outputs,) if param.bias_term else ()
        if self.blobs:
            self._check_blobs(weight_shape, bias_shape)
        else:
            stream = context.current().stream
            self.blobs = [Blob(weight_shape, self.dtype)]
            fill(self.blobs[0], param.weight_filler, stream)
            if param.bias_term:
                self.blobs.append(Blob(bias_shape, self.dtype))
                fill(self.blobs[1], param.bias_filler, stream)
        self.param_propagate_down = [True] * len(self.blobs)

    def _check_blobs(self, weight_shape: tuple[int, ...], bias_shape: tuple[int, ...]) -> None:
        expected = 1 + len(bias_shape)
        text = "Incorrect number of weight blobs."
        _check.eq(expected, len(self.blobs), "1 + bias_term_ == this->blobs_.size()", text)
        shapes = {"weight": weight_shape, "bias": bias_shape}
        for (name, shape), blob in zip(shapes.items(), self.blobs, strict=False):
            if shape != blob.shape:
                expected_shape = Blob(shape, self.dtype).shape_string
                there = f"expected shape {expected_shape}; instead, shape was {blob.shape_string}"
                _check.fatal(f"Incorrect {name} shape: {there}")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        first = bottom[0]
        start = self.axis + 1
        expression = "bottom[0]->num_axes() == first_spatial_axis + num_spatial_axes_"
        axes = start + len(self.window.kernel)
        _check.eq(first.num_axes, axes, expression, "bottom num_axes may not change.")
        self.images = first.count_range(0, self.axis)
        text = "Input size incompatible with convolution kernel."
        _check.eq(first.shape[self.axis], self.channels, "bottom[0]->shape(channel_axis_) == channels_", text)
        for i, other in enumerate(bottom[1:], 1):
            text = f"shape mismatch - bottom[0]: {first.shape_string} vs. bottom[{i}]: {other.shape_string}"
            _check(first.shape == other.shape, "bottom[0]->shape() == bottom[bottom_id]->shape()", text)
        size = first.shape[start:]
        output = self.output_shape(self.window, size)
        for blob in top:
            blob.reshape(*first.shape[: self.axis], self.outputs, *output)
        self.bottom_shape = (self.images, self.channels, prod(size))
        self.top_shape = (self.images, self.outputs, prod(output))
        image, grid = (size, output) if self.bottom_is_image else (output, size)
        if (image, grid) != self.shaped_for:
            self._shape_columns(image, grid)
            self.shaped_for = (image, grid)
        self.columns.reshape(self.group * self.weight_shape[2], *grid)
        self.image_dims.reshape(1 + len(image))
        self.image_dims.mutable_cpu_data()[...] = (self.image_channels, *image)
        if self.param.convolution_param.bias_term:
            self.ones.reshape(self.top_shape[2])
            self.ones.mutable_cpu_data().fill(1)

    def _shape_columns(self, image: tuple[int, ...], grid: tuple[int, ...]) -> None:
        group, window = self.group, self.window
        depth = self.image_channels // group * prod(window.kernel)
        # Shapes of one image's arrays, group by group.
        self.weight_shape = (group, self.grid_channels // group, depth)
        self.grid_shape = (group, self.grid_channels // group, prod(grid))
        self.column_shape = (group, depth, prod(grid))
        self.image_shape = (self.image_channels, *image)
        if not window.is_a_point:
            steps = (window.kernel, window.stride, window.pad, window.dilation)
            self.column_map = column_map(self.image_channels, image, grid, *steps)
        self.products = Products(self.weight_shape, grid, self.column_map)

    # --- products for one image; arrays are (channels, places), weights are shaped ``weight_shape``

    def image_to_grid(self, side: Side, image: Any, weight: Any, grid: Any, columns: Any = None) -> None:
        """grid = weight · columns of the image. ``columns``: if they are there already."""
        if columns is None:
            columns = self._columns(side, image)
        side.xp.matmul(weight, columns, out=grid.reshape(self.grid_shape))

    def grid_to_image(self, side: Side, grid: Any, weight: Any, image: Any) -> None:
        """image = the sum, over all positions that see a pixel, of weightᵀ · grid."""
        grid = grid.reshape(self.grid_shape)
        weight = weight.transpose(0, 2, 1)
        if self.column_map is None:
            side.xp.matmul(weight, grid, out=image.reshape(self.column_shape))
        else:
            columns = side.mutable_data(self.columns).reshape(self.column_shape)
            side.xp.matmul(weight, grid, out=columns)
            self._bring_tables(side)
            col2im(side, self.column_map, columns, image.reshape(self.image_shape))

    def add_weight_diff(self, side: Side, image: Any, grid: Any, weight_diff: Any) -> Any:
        """weight_diff += grid · (columns of the image)ᵀ; returns the columns."""
        columns = self._columns(side, image)
        product(side, grid.reshape(self.grid_shape), columns.transpose(0, 2, 1), weight_diff, add=True)
        return columns

    def _columns(self, side: Side, image: Any) -> Any:
        """The image as columns, in the buffer, or itself if the window is a point."""
        if self.column_map is None:
            return image.reshape(self.column_shape)
        columns = side.mutable_data(self.columns).reshape(self.column_shape)
        self._bring_tables(side)
        im2col(side, self.column_map, image.reshape(self.image_shape), columns)
        return columns

    def _bring_tables(self, side: Side) -> None:
        """What upstream's kernels look up."""
        if side.gpu and self.tables is not None:
            side.data(self.image_dims)
            self.tables.bring(side, self.columns)

    # --- forward and backward: on the host all images at once, on a device one by one

    def host_forward(self, x: Any, weight: Any, y: Any, bias: Any) -> None:
        """All images' tops; ``bias`` is a column or None."""
        raise NotImplementedError

    def host_backward(self, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        """All images' gradients; ``weight_diff`` or ``dx`` is None if it isn't wanted."""
        raise NotImplementedError

    def image_forward(self, side: Side, x: Any, weight: Any, y: Any) -> None:
        """One image's top without the bias."""
        raise NotImplementedError

    def image_backward(self, side: Side, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        """One image's gradients; ``weight_diff`` or ``dx`` is None if it isn't wanted."""
        raise NotImplementedError

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        weight = side.data(self.blobs[0]).reshape(self.weight_shape)
        for source, target in zip(bottom, top, strict=True):
            x, y = side.data(source), side.mutable_data(target)
            x, y = x.reshape(self.bottom_shape), y.reshape(self.top_shape)
            bias = self._bias(side)
            if not side.gpu:
                self.host_forward(x, weight, y, bias)
                continue
            for n in range(self.images):
                self.image_forward(side, x[n], weight, y[n])
                if bias is not None:
                    side.xp.add(y[n], bias, out=y[n])

    def _bias(self, side: Side) -> Any:
        """The bias as a column, or None. It is added after the product, as by a product with ones."""
        if len(self.blobs) < 2:
            return None
        bias = side.data(self.blobs[1])
        side.data(self.ones)
        return bias[:, None]

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        weight = side.data(self.blobs[0]).reshape(self.weight_shape)
        weight_diff = side.mutable_diff(self.blobs[0]).reshape(self.weight_shape)
        wants_weight = self.wants_param_diff(0)
        for target, source, wanted in zip(top, bottom, propagate_down, strict=True):
            dy = side.diff(target).reshape(self.top_shape)
            if self.wants_param_diff(1):
                self._add_bias_diff(side, dy)
            if not (wants_weight or wanted) and side.gpu and self.bottom_is_image:
                continue
            x, dx = side.data(source), side.mutable_diff(source)
            x, dx = x.reshape(self.bottom_shape), dx.reshape(self.bottom_shape)
            if not (wants_weight or wanted):
                continue
            if not side.gpu:
                self.host_backward(x, dy, weight, weight_diff if wants_weight else None, dx if wanted else None)
                continue
            for n in range(self.images):
                wanted_diffs = (weight_diff if wants_weight else None, dx[n] if wanted else None)
                self.image_backward(side, x[n], dy[n], weight, *wanted_diffs)

    def _add_bias_diff(self, side: Side, dy: Any) -> None:
        bias_diff = side.mutable_diff(self.blobs[1])
        for sums in plane_sums(side, dy, side.data(self.ones)):
            bias_diff += sums
