"""SoftmaxWithLoss: multinomial logistic loss of the softmax of its first bottom."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, create, register
from refcaffe.layers.normalization_mode import Normalization, check_labels, integers
from refcaffe.layers.sums import absolute_sum, in_double, in_order, scale
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import HOST, Side

_check = Checker("softmax_loss_layer.cpp")

FLT_MIN = np.finfo(np.float32).tiny


@register("SoftmaxWithLoss")
class SoftmaxWithLoss(LossLayer):
    """-log(max(p, FLT_MIN)) at each place's label; the second top, if there is one, is the probabilities.

    A device adds up absolute values, and leaves zeros in the bottom's diff.
    """

    exact_tops = -1
    min_tops = 1
    max_tops = 2

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        inner = LayerParameter()
        inner.CopyFrom(self.param)
        inner.type = "Softmax"
        self.softmax = create(inner, self.dtype)
        self.prob = Blob(dtype=self.dtype)
        self.softmax.set_up(bottom[:1], [self.prob])
        self.normalization = Normalization(self.param.loss_param)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.softmax.reshape(bottom[:1], [self.prob])
        axis = bottom[0].canonical_axis(self.param.softmax_param.axis)
        outer, inner = bottom[0].count_range(0, axis), bottom[0].count_range(axis + 1)
        text = (
            "Number of labels must match number of predictions; "
            "e.g., if softmax axis == 1 and prediction shape is (N, C, H, W), "
            "label count (number of labels) must be N*H*W, "
            "with integer values in {0, 1, ..., C-1}."
        )
        _check.eq(outer * inner, bottom[1].count, "outer_num_ * inner_num_ == bottom[1]->count()", text)
        self.planes = (outer, bottom[0].shape[axis], inner)
        if len(top) >= 2:
            top[1].reshape_like(bottom[0])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        self.softmax.forward(bottom[:1], [self.prob])
        prob = side.data(self.prob).reshape(self.planes)
        larger = xp.fmax if side.gpu else xp.maximum  # not-a-numbers end there
        losses = larger(prob[self._places(side, bottom[1])], self.dtype.type(FLT_MIN))
        xp.log(losses, out=losses, **in_double(xp))
        total = absolute_sum(side, losses) if side.gpu else in_order(xp, 0, -losses)
        HOST.mutable_data(top[0])[...] = total / self._divisor(losses.size)
        if len(top) == 2:
            top[1].share_data(self.prob)
        if side.gpu:  # where upstream's terms have been
            side.mutable_diff(bottom[0]).fill(0)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1]:
            _check.fatal("SoftmaxWithLoss Layer cannot backpropagate to label inputs.")
        if not propagate_down[0]:
            return
        xp = side.xp
        dx = side.mutable_diff(bottom[0]).reshape(self.planes)
        side.copy(dx, side.data(self.prob))
        if side.gpu:
            side.data(top[0])
        places = self._places(side, bottom[1])
        dx[places] -= 1
        ignored = self.normalization.ignored(self._labels(side, bottom[1]))
        if ignored is not None:
            xp.copyto(dx, 0, where=ignored[:, None, :])
        scale(dx, HOST.diff(top[0]).reshape(-1)[0] / self._divisor(places[0].size))

    def _labels(self, side: Side, label: Blob) -> Any:
        return integers(side.data(label)).reshape(self.planes[0], self.planes[2])

    def _places(self, side: Side, label: Blob) -> tuple[Any, Any, Any]:
        """Where in ``planes`` the labels are that are not ignored."""
        labels = self._labels(side, label)
        i, j = self.normalization.places(side.xp, labels)
        labels = labels[i, j]
        check_labels(_check, labels, self.planes[1], "label_value < prob_.shape(softmax_axis_)")
        return i, labels, j

    def _divisor(self, valid: int) -> Any:
        return self.normalization.divisor(self.planes[0], self.planes[2], valid, self.dtype)
