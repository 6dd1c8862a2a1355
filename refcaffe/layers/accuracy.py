"""Accuracy: the share of labels among the top_k best scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.normalization_mode import check_labels, integers
from refcaffe.side import HOST, Side

_check = Checker("accuracy_layer.cpp")


@register("Accuracy")
class Accuracy(Layer):
    """A label counts as found if fewer than top_k other scores are at least as high; second top: by class."""

    exact_bottoms = 2
    min_tops = 1
    max_tops = 2

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.accuracy_param
        self.top_k = to_int(param.top_k)
        self.ignore_label: int | None = param.ignore_label if param.HasField("ignore_label") else None

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        scores, label = bottom
        _check(label.count, "bottom[1]->count() != 0")  # upstream divides by it, and dies
        text = "top_k must be less than or equal to the number of classes."
        ratio = scores.count // label.count
        _check.le(self.top_k, ratio, "top_k_ <= bottom[0]->count() / bottom[1]->count()", text)
        axis = scores.canonical_axis(self.param.accuracy_param.axis)
        outer, inner = scores.count_range(0, axis), scores.count_range(axis + 1)
        text = (
            "Number of labels must match number of predictions; "
            "e.g., if label axis == 1 and prediction shape is (N, C, H, W), "
            "label count (number of labels) must be N*H*W, "
            "with integer values in {0, 1, ..., C-1}."
        )
        _check.eq(outer * inner, label.count, "outer_num_ * inner_num_ == bottom[1]->count()", text)
        self.planes = (outer, scores.shape[axis], inner)
        top[0].reshape(())
        if len(top) > 1:
            top[1].reshape(scores.shape[axis])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        outer, classes, inner = self.planes
        scores = side.data(bottom[0]).reshape(self.planes)
        labels = integers(side.data(bottom[1])).reshape(outer, 1, inner)
        counts = xp.ones(labels.shape, bool) if self.ignore_label is None else labels != self.ignore_label
        check_labels(_check, labels[counts], classes, "label_value < num_labels")
        labels = xp.where(counts, labels, 0)
        better = scores >= xp.take_along_axis(scores, labels, axis=1)  # the label itself is among them
        right = (better.sum(axis=1, keepdims=True) <= self.top_k) & counts
        total = int(counts.sum())
        share = self.dtype.type(int(right.sum())) / self.dtype.type(total) if total else 0
        if len(top) > 1:
            nums = side.host(xp.bincount(labels[counts], minlength=classes)).astype(self.dtype)
            found = HOST.mutable_data(top[1])
            found[...] = side.host(xp.bincount(labels[right], minlength=classes))
            np.divide(found, np.maximum(nums, 1), out=found)
        HOST.mutable_data(top[0])[...] = share
        if side.gpu:
            self._leave_scratch(side, bottom, counts if len(top) == 1 else None)

    def _leave_scratch(self, side: Side, bottom: Blobs, counts: Any) -> None:
        """Upstream counts in the bottoms' diffs, and clears that of the scores only."""
        side.mutable_diff(bottom[0]).fill(0)
        if counts is not None:
            side.mutable_diff(bottom[1]).reshape(counts.shape)[...] = counts

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1] or (any(propagate_down) and not side.gpu):
            Checker("accuracy_layer.hpp").fatal("Not Implemented Yet")
