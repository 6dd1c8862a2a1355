"""Slice: a bottom cut along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.axes import check_one_name, chosen_axis, parts, to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.blocks import each_row_block
from refcaffe.side import Side

_check = Checker("slice_layer.cpp")


@register("Slice")
class Slice(Layer):
    """Cut at the points given, or into equal parts. A single top shares data and diff with the bottom."""

    exact_bottoms = 1
    min_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        check_one_name(_check, self.param.slice_param, "slice")
        self.points = [to_int(point) for point in self.param.slice_param.slice_point]

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.axis = chosen_axis(_check, self.param.slice_param, "slice", bottom[0])
        shape = list(bottom[0].shape)
        for blob, size in zip(top, self._sizes(bottom[0], len(top)), strict=True):
            shape[self.axis] = size
            blob.reshape(shape)
        if len(top) == 1:
            top[0].share_data(bottom[0])
            top[0].share_diff(bottom[0])

    def _sizes(self, blob: Blob, tops: int) -> list[int]:
        whole = blob.shape[self.axis]
        if not self.points:
            text = f"Number of top blobs ({tops}) should evenly divide input slice axis ({whole})"
            _check.eq(whole % tops, 0, "bottom_slice_axis % top.size() == 0", text)
            return [whole // tops] * tops
        _check.eq(len(self.points), tops - 1, "slice_point_.size() == top.size() - 1")
        text = f"slice axis: {self.axis}, bottom[0] shape: {blob.shape_string}"
        _check.le(tops, whole, "top.size() <= bottom_slice_axis", text)
        edges = [0, *self.points, whole]
        for before, point in zip(edges, self.points, strict=False):
            _check.gt(point, before, "slice_point_[i] > prev")
        return [after - before for before, after in pairwise(edges)]

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        if len(top) == 1:
            return
        x = side.data(bottom[0])
        for blob, part in zip(top, parts(x, self.axis, top), strict=True):
            each_row_block(side, side.xp.copyto, side.mutable_data(blob), part)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0] or len(top) == 1:
            return
        dx = side.mutable_diff(bottom[0])
        for blob, part in zip(top, parts(dx, self.axis, top), strict=True):
            each_row_block(side, side.xp.copyto, part, side.diff(blob))
