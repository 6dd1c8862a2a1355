"""Crop: the part of bottom 0 that is as large as bottom 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("crop_layer.cpp")


@register("Crop")
class Crop(Layer):
    """Axes from ``axis`` on are cut, at one offset for all or one for each. Bottom 1 gives its shape only."""

    exact_bottoms = 2
    exact_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.tables = [Blob(dtype=np.int32) for _ in range(3)]
        param, axes = self.param.crop_param, bottom[0].num_axes
        start = bottom[0].canonical_axis(param.axis)
        if len(param.offset) > 1:
            expression = "start_axis + param.offset_size() == input_dim"
            text = "number of offset values specified must be equal to the number of dimensions following"
            _check.eq(start + len(param.offset), axes, expression, f"{text} axis.")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        x, size = bottom
        start = x.canonical_axis(self.param.crop_param.axis)
        offsets = [to_int(offset) for offset in self.param.crop_param.offset] or [0]
        shape = list(x.shape)
        self.part = [slice(None)] * x.num_axes
        for i in range(start, x.num_axes):
            offset = offsets[i - start] if len(offsets) > 1 else offsets[0]
            shape[i] = size.dim(i)
            text = f"the crop for dimension {i} is out-of-bounds with size {shape[i]} and offset {offset}"
            expression = "bottom[0]->shape(i) - crop_offset >= bottom[1]->shape(i)"
            _check.ge(x.shape[i] - offset, shape[i], expression, text)
            # Upstream lets an offset beyond 2**31 through, and reads before the blob's memory.
            _check.ge(offset, 0, "crop_offset >= 0", text)
            self.part[i] = slice(offset, offset + shape[i])
        top[0].reshape(shape)
        self._fill_tables([part.start or 0 for part in self.part], x, top[0])

    def _fill_tables(self, offsets: list[int], x: Blob, y: Blob) -> None:
        """What upstream's kernels look up: offsets, and strides of bottom and top; written anew for every pass."""
        strides = [[blob.count_range(i + 1) for i in range(blob.num_axes)] for blob in (x, y)]
        for table, values in zip(self.tables, [offsets, *strides], strict=True):
            table.reshape(x.num_axes)
            table.mutable_cpu_data()[...] = values

    def _bring_tables(self, side: Side) -> None:
        for table in self.tables if side.gpu else ():
            side.data(table)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x = side.data(bottom[0])
        self._bring_tables(side)
        side.mutable_data(top[0])[...] = x[tuple(self.part)]

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy, dx = side.diff(top[0]), side.mutable_diff(bottom[0])
        if propagate_down[0]:
            self._bring_tables(side)
            dx.fill(0)
            dx[tuple(self.part)] = dy
