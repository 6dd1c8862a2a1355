"""SigmoidCrossEntropyLoss: logistic loss of independent yes-or-no answers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.normalization_mode import Normalization, integers
from refcaffe.layers.sigmoid import Sigmoid
from refcaffe.layers.sums import absolute_sum, check_size, in_double, in_order, scale
from refcaffe.proto.caffe_pb2 import LayerParameter, LossParameter
from refcaffe.side import HOST, Side

_check = Checker("sigmoid_cross_entropy_loss_layer.cpp")


@register("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(LossLayer):
    """Targets may be any numbers; those are ignored whose integer part is ``ignore_label``.

    A device adds up absolute values (another loss for targets outside [0, 1]), and leaves zeros in the bottoms' diffs.
    """

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        inner = LayerParameter()
        inner.CopyFrom(param)
        inner.ClearField("sigmoid_param")  # its engine is not looked at
        self.sigmoid = Sigmoid(inner, dtype)
        self.sigmoid_output = Blob(dtype=self.dtype)
        self.normalization = Normalization(param.loss_param, LossParameter.BATCH_SIZE)
        self.divisor = self.dtype.type(1)

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        self.sigmoid.set_up(bottom[:1], [self.sigmoid_output])

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        text = "SIGMOID_CROSS_ENTROPY_LOSS layer inputs must have the same count."
        _check.eq(bottom[0].count, bottom[1].count, "bottom[0]->count() == bottom[1]->count()", text)
        self.sigmoid.reshape(bottom[:1], [self.sigmoid_output])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        self.sigmoid.forward(bottom[:1], [self.sigmoid_output])
        loss, valid = self.dtype.type(0), 0
        for x, target in blocks(side, side.data(bottom[0]), side.data(bottom[1])):
            positive = x >= 0
            # log(1 + exp(-|x|)), so written that an infinite x gives NaN as it does upstream.
            logs = x - 2 * x * positive
            xp.exp(logs, out=logs, **in_double(xp))
            logs += 1
            xp.log(logs, out=logs, **in_double(xp))
            terms = x * (target - positive)
            terms -= logs
            ignored = self.normalization.ignored(integers(target))
            if ignored is not None:
                terms = terms[~ignored]
            loss = loss + absolute_sum(side, terms) if side.gpu else in_order(xp, loss, -terms)
            valid += terms.size
        outer, inner = bottom[0].dim(0), bottom[0].count_range(1)
        self.divisor = self.normalization.divisor(outer, inner, valid, self.dtype)
        HOST.mutable_data(top[0])[...] = loss / self.divisor
        if side.gpu:  # where upstream's terms and counts have been
            for blob in bottom:
                side.mutable_diff(blob).fill(0)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1]:
            _check.fatal("SigmoidCrossEntropyLoss Layer cannot backpropagate to label inputs.")
        if not propagate_down[0]:
            return
        arrays = side.data(self.sigmoid_output), side.data(bottom[1]), side.mutable_diff(bottom[0])
        weight = HOST.diff(top[0]).reshape(-1)[0] / self.divisor
        check_size(side, arrays[0].size)
        if side.gpu:
            side.copy(arrays[2], arrays[0])
        for s, target, dx in blocks(side, *arrays):
            ignored = self.normalization.ignored(integers(target))
            side.xp.subtract(s, target, out=dx)
            if ignored is not None:
                side.xp.copyto(dx, 0, where=ignored)
            scale(dx, weight)
