"""InfogainLoss: multinomial logistic loss of the softmax, in which every pair of classes has its weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, create, register
from refcaffe.layers.normalization_mode import LOG_THRESHOLD, Normalization, check_labels, integers
from refcaffe.layers.sums import in_double, in_order, scale
from refcaffe.proto.caffe_pb2 import BlobProto, LayerParameter
from refcaffe.proto.io import read_binary
from refcaffe.side import HOST, Side

_check = Checker("infogain_loss_layer.cpp")


@register("InfogainLoss")
class InfogainLoss(LossLayer):
    """-sum over l of H[label, l] * log(p[l]). H, (classes, classes), is the third bottom or read from a file.

    The second top, if there is one, is the probabilities.
    """

    exact_bottoms = -1
    min_bottoms = 2
    max_bottoms = 3
    exact_tops = -1
    min_tops = 1
    max_tops = 2
    forward_on_gpu = False
    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        param = self.param.infogain_loss_param
        inner = LayerParameter()
        inner.CopyFrom(self.param)
        inner.type = "Softmax"
        inner.softmax_param.axis = param.axis
        inner.loss_weight[:] = [1]
        self.softmax = create(inner, self.dtype)
        self.prob = Blob(dtype=self.dtype)
        self.softmax.set_up(bottom[:1], [self.prob])
        expression = "!this->layer_param_.loss_param().has_normalize()"
        text = 'normalize is deprecated. use "normalization"'
        _check(not self.param.loss_param.HasField("normalize"), expression, text)
        self.normalization = Normalization(self.param.loss_param)
        self.matrix, self.row_sums = Blob(dtype=self.dtype), Blob(dtype=self.dtype)
        if len(bottom) < 3:
            expression = "this->layer_param_.infogain_loss_param().has_source()"
            _check(param.HasField("source"), expression, "Infogain matrix source must be specified.")
            self.matrix.from_proto(read_binary(param.source, BlobProto))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.softmax.reshape(bottom[:1], [self.prob])
        axis = bottom[0].canonical_axis(self.param.infogain_loss_param.axis)
        outer, inner = bottom[0].count_range(0, axis), bottom[0].count_range(axis + 1)
        text = (
            "Number of labels must match number of predictions; "
            "e.g., if infogain axis == 1 and prediction shape is (N, C, H, W), "
            "label count (number of labels) must be N*H*W, "
            "with integer values in {0, 1, ..., C-1}."
        )
        _check.eq(outer * inner, bottom[1].count, "outer_num_ * inner_num_ == bottom[1]->count()", text)
        classes = bottom[0].shape[axis]
        self.planes = (outer, classes, inner)
        matrix = bottom[2] if len(bottom) > 2 else self.matrix
        _check.eq(matrix.count, classes * classes, "infogain->count() == num_labels_*num_labels_")
        self.row_sums.reshape(classes)
        if len(bottom) == 2:
            self._sum_rows(HOST, self.matrix)
        if len(top) >= 2:
            top[1].reshape_like(bottom[0])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        self.softmax.forward(bottom[:1], [self.prob])
        i, j, labels = self._places(side, bottom[1])
        terms = self._by_place(side.data(self.prob))[i, j]
        xp.maximum(terms, self.dtype.type(LOG_THRESHOLD), out=terms)
        xp.log(terms, out=terms, **in_double(xp))
        terms *= self._rows(side, bottom)[labels]
        loss = in_order(xp, 0, -terms.reshape(-1))
        side.mutable_data(top[0])[...] = loss / self._divisor(labels.size)
        if len(top) == 2:
            top[1].share_data(self.prob)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1]:
            _check.fatal("InfogainLoss Layer cannot backpropagate to label inputs.")
        if len(propagate_down) > 2 and propagate_down[2]:
            _check.fatal("InfogainLoss Layer cannot backpropagate to infogain inputs.")
        if not propagate_down[0]:
            return
        prob = self._by_place(side.data(self.prob))
        i, j, labels = self._places(side, bottom[1])
        if len(bottom) > 2:
            self._sum_rows(side, bottom[2])
        row_sums, dx = side.data(self.row_sums), side.mutable_diff(bottom[0])
        dx.fill(0)
        terms = prob[i, j]
        terms *= row_sums[labels][:, None]
        terms -= self._rows(side, bottom)[labels]
        self._by_place(dx)[i, j] = terms
        scale(dx, side.diff(top[0]).reshape(-1)[0] / self._divisor(labels.size))

    def _by_place(self, array: Any) -> Any:
        """A view of the array with the classes last: (outer, inner, classes)."""
        return array.reshape(self.planes).swapaxes(1, 2)

    def _rows(self, side: Side, bottom: Blobs) -> Any:
        """H, a row for each label."""
        matrix = bottom[2] if len(bottom) > 2 else self.matrix
        return side.data(matrix).reshape(self.planes[1], -1)

    def _sum_rows(self, side: Side, matrix: Blob) -> None:
        rows = side.data(matrix).reshape(self.planes[1], -1)
        side.mutable_data(self.row_sums)[...] = in_order(side.xp, 0, rows)

    def _places(self, side: Side, label: Blob) -> tuple[Any, Any, Any]:
        """Outer and inner index of the labels that are not ignored, and these labels."""
        outer, classes, inner = self.planes
        labels = integers(side.data(label)).reshape(outer, inner)
        i, j = self.normalization.places(side.xp, labels)
        labels = labels[i, j]
        check_labels(_check, labels, classes, "label_value < num_labels_")
        return i, j, labels

    def _divisor(self, valid: int) -> Any:
        return self.normalization.divisor(self.planes[0], self.planes[2], valid, self.dtype)
