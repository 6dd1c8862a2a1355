"""MultinomialLogisticLoss: minus the logarithm of the label's probability."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, register
from refcaffe.layers.normalization_mode import LOG_THRESHOLD, check_labels, integers
from refcaffe.layers.sums import in_double, in_order
from refcaffe.side import Side

_check = Checker("multinomial_logistic_loss_layer.cpp")


@register("MultinomialLogisticLoss")
class MultinomialLogisticLoss(LossLayer):
    """Probabilities are taken as at least 1e-20, in the gradient too."""

    forward_on_gpu = False
    backward_on_gpu = False

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        _check.eq(bottom[1].channels, 1, "bottom[1]->channels() == 1")
        _check.eq(bottom[1].height, 1, "bottom[1]->height() == 1")
        _check.eq(bottom[1].width, 1, "bottom[1]->width() == 1")

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x, places = self._places(side, bottom)
        losses = self._probabilities(side, x, places)
        xp.log(losses, out=losses, **in_double(xp))
        side.mutable_data(top[0])[...] = in_order(xp, 0, -losses) / self.dtype.type(bottom[0].num)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[1]:
            _check.fatal("MultinomialLogisticLoss Layer cannot backpropagate to label inputs.")
        if not propagate_down[0]:
            return
        x, places = self._places(side, bottom)
        dx = side.mutable_diff(bottom[0]).reshape(x.shape)
        dx.fill(0)
        weight = -side.diff(top[0]).reshape(-1)[0] / self.dtype.type(bottom[0].num)
        dx[places] = weight / self._probabilities(side, x, places)

    def _places(self, side: Side, bottom: Blobs) -> tuple[Any, tuple[Any, Any]]:
        """The bottom as (N, classes), and where the labels are in it."""
        num = bottom[0].num
        _check(num, "num != 0")  # upstream divides by it, and dies
        x = side.data(bottom[0]).reshape(num, -1)
        labels = integers(side.data(bottom[1])).reshape(-1)
        check_labels(_check, labels, x.shape[1], "label_value < dim")
        return x, (side.xp.arange(num), labels)

    def _probabilities(self, side: Side, x: Any, places: tuple[Any, Any]) -> Any:
        return side.xp.maximum(x[places], self.dtype.type(LOG_THRESHOLD))
