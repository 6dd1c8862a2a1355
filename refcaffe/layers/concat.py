"""Concat: bottoms one after the other along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.axes import check_one_name, chosen_axis, parts
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.blocks import each_row_block
from refcaffe.side import Side

_check = Checker("concat_layer.cpp")


@register("Concat")
class Concat(Layer):
    """A single bottom is shared, data and diff, instead of copied."""

    min_bottoms = 1
    exact_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        check_one_name(_check, self.param.concat_param, "concat")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        first = bottom[0]
        self.axis = chosen_axis(_check, self.param.concat_param, "concat", first)
        shape = list(first.shape)
        for blob in bottom[1:]:
            text = "All inputs must have the same #axes."
            _check.eq(first.num_axes, blob.num_axes, "num_axes == bottom[i]->num_axes()", text)
            for j in range(first.num_axes):
                if j != self.axis:
                    text = "All inputs must have the same shape, except at concat_axis."
                    _check.eq(shape[j], blob.shape[j], "top_shape[j] == bottom[i]->shape(j)", text)
            shape[self.axis] += blob.shape[self.axis]
        top[0].reshape(shape)
        if len(bottom) == 1:
            top[0].share_data(first)
            top[0].share_diff(first)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        if len(bottom) == 1:
            return
        y = side.mutable_data(top[0])
        for blob, part in zip(bottom, parts(y, self.axis, bottom), strict=True):
            each_row_block(side, side.xp.copyto, part, side.data(blob))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if len(bottom) == 1:
            return
        dy = side.diff(top[0])
        for blob, part, wanted in zip(bottom, parts(dy, self.axis, bottom), propagate_down, strict=True):
            if wanted:
                each_row_block(side, side.xp.copyto, side.mutable_diff(blob), part)
