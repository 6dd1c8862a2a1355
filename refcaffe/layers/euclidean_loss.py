"""EuclideanLoss: half the mean over the batch of the squared distance of two blobs."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, register
from refcaffe.layers.sums import check_size, scaled
from refcaffe.side import HOST, Side

_check = Checker("euclidean_loss_layer.cpp")


@register("EuclideanLoss")
class EuclideanLoss(LossLayer):
    """The bottoms need the same size only, not the same shape; both get a gradient."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        self.difference = Blob(dtype=self.dtype)

    def allow_force_backward(self, bottom_index: int) -> bool:
        return True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        a, b = (blob.count_range(1) for blob in bottom)
        text = "Inputs must have the same dimension."
        _check.eq(a, b, "bottom[0]->count(1) == bottom[1]->count(1)", text)
        self.difference.reshape_like(bottom[0])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        difference = side.mutable_data(self.difference).reshape(-1)
        b, a = side.data(bottom[1]).reshape(-1), side.data(bottom[0]).reshape(-1)
        check_size(side, a.size)
        side.xp.subtract(a, b, out=difference)
        real = self.dtype.type
        loss = real(side.host(difference @ difference)) / real(bottom[0].num) / real(2)
        HOST.mutable_data(top[0])[...] = loss

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for i, sign in enumerate((1, -1)):
            if propagate_down[i]:
                weight = sign * HOST.diff(top[0]).reshape(-1)[0] / self.dtype.type(bottom[i].num)
                dx = side.mutable_diff(bottom[i]).reshape(-1)
                scaled(side.xp, weight, side.data(self.difference).reshape(-1), dx)
