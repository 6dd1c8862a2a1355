"""HingeLoss: one against all, linear (L1) or squared (L2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, register
from refcaffe.layers.normalization_mode import check_labels, integers
from refcaffe.layers.sums import check_size, scale, sign
from refcaffe.proto.caffe_pb2 import HingeLossParameter
from refcaffe.side import Side

_check = Checker("hinge_loss_layer.cpp")


@register("HingeLoss")
class HingeLoss(LossLayer):
    """Margins: max(0, 1 + x), at the label max(0, 1 - x). Forward leaves them in the bottom's diff."""

    forward_on_gpu = False
    backward_on_gpu = False

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        num = bottom[0].num
        _check(num, "num != 0")  # upstream divides by it, and dies
        x, margins = side.data(bottom[0]).reshape(num, -1), side.mutable_diff(bottom[0]).reshape(num, -1)
        side.copy(margins, x)
        margins[self._places(side, bottom, margins)] *= -1
        margins += 1
        xp.fmax(margins, 0, out=margins)  # NaN becomes 0
        if self.param.hinge_loss_param.norm == HingeLossParameter.L1:
            loss = xp.sum(margins)
        else:
            loss = margins.reshape(-1) @ margins.reshape(-1)
        side.mutable_data(top[0])[...] = loss / self.dtype.type(num)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1]:
            _check.fatal("HingeLoss Layer cannot backpropagate to label inputs.")
        if not propagate_down[0]:
            return
        num = bottom[0].num
        dx = side.mutable_diff(bottom[0]).reshape(num, -1)
        dx[self._places(side, bottom, dx)] *= -1
        weight = side.diff(top[0]).reshape(-1)[0]
        if self.param.hinge_loss_param.norm == HingeLossParameter.L1:
            check_size(side, dx.size, "math_functions.hpp")
            sign(side, dx, dx)
            scale(dx, weight / self.dtype.type(num))
        else:
            scale(dx, weight * 2 / self.dtype.type(num))

    def _places(self, side: Side, bottom: Blobs, margins: Any) -> tuple[Any, Any]:
        """Where in the margins the labels are."""
        num, dim = margins.shape
        labels = integers(side.data(bottom[1])).reshape(-1)[:num]
        check_labels(_check, labels, dim, "label_value < dim")
        return side.xp.arange(num), labels
