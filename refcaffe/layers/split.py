"""Split: several tops that are all the bottom; their diffs are added up."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.blocks import each_block
from refcaffe.layers.sums import check_size
from refcaffe.side import Side

_check = Checker("split_layer.cpp")


@register("Split")
class Split(Layer):
    """The tops share the bottom's data; each has a diff of its own."""

    exact_bottoms = 1
    min_tops = 1

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for blob in top:
            text = "Split Layer does not allow in-place computation."
            _check(blob is not bottom[0], "top[i] != bottom[0]", text)
            blob.reshape_like(bottom[0])
            # A bottom that never got a shape has none of the one element that no axes make.
            _check.eq(bottom[0].count, blob.count, "count_ == top[i]->count()")

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        for blob in top:
            blob.share_data(bottom[0])

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        dx = side.mutable_diff(bottom[0])
        if len(top) == 1:
            side.copy(dx, side.diff(top[0]))
            return
        check_size(side, dx.size)
        b, a = side.diff(top[1]), side.diff(top[0])
        each_block(side, lambda *parts: side.xp.add(*parts[:2], out=parts[2]), a, b, dx)
        for blob in top[2:]:
            each_block(side, lambda total, part: side.xp.add(total, part, out=total), dx, side.diff(blob))
