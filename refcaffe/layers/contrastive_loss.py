"""ContrastiveLoss: pulls similar pairs together and pushes others apart, up to a margin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, LossLayer, register
from refcaffe.layers.broadcast import fill_ones
from refcaffe.layers.normalization_mode import integers
from refcaffe.layers.sums import check_size, in_order
from refcaffe.side import HOST, Side

_check = Checker("contrastive_loss_layer.cpp")


@register("ContrastiveLoss")
class ContrastiveLoss(LossLayer):
    """Bottoms: a, b (N, C), labels (N): similar pairs are those whose label is not 0.

    Similar: d². Others: max(margin - d, 0)², or max(margin - d², 0) in the legacy version. Sum / 2N.
    """

    exact_bottoms = 3

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        a, b, similar = bottom
        _check.eq(a.channels, b.channels, "bottom[0]->channels() == bottom[1]->channels()")
        _check.eq(a.height, 1, "bottom[0]->height() == 1")
        _check.eq(a.width, 1, "bottom[0]->width() == 1")
        _check.eq(b.height, 1, "bottom[1]->height() == 1")
        _check.eq(b.width, 1, "bottom[1]->width() == 1")
        _check.eq(similar.channels, 1, "bottom[2]->channels() == 1")
        _check.eq(similar.height, 1, "bottom[2]->height() == 1")
        _check.eq(similar.width, 1, "bottom[2]->width() == 1")
        self.difference, self.squares, self.ones = (Blob(dtype=self.dtype) for _ in range(3))
        param = self.param.contrastive_loss_param
        self.margin, self.legacy = self.dtype.type(param.margin), param.legacy_version

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.difference.reshape(bottom[0].num, bottom[0].channels, 1, 1)
        self.squares.reshape(bottom[0].num, 1, 1, 1)
        fill_ones(self.ones, bottom[0].channels)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp, num = side.xp, bottom[0].num
        difference = side.mutable_data(self.difference)
        b, a = side.data(bottom[1]), side.data(bottom[0])
        check_size(side, a.size)
        xp.subtract(a.reshape(difference.shape), b.reshape(difference.shape), out=difference)
        difference = difference.reshape(num, -1)
        squares = side.mutable_data(self.squares).reshape(-1)
        if side.gpu:
            xp.matmul(difference * difference, side.data(self.ones), out=squares)
        else:
            squares[...] = xp.einsum("nc,nc->n", difference, difference)
        HOST.mutable_data(top[0])[...] = self._loss(bottom[2]) / self.dtype.type(num) / self.dtype.type(2)

    def _loss(self, labels: Blob) -> Any:
        """The sum over all pairs; the host's work."""
        squares = HOST.data(self.squares).reshape(-1)
        if self.legacy:
            apart = np.maximum(self.margin - squares, 0)
        else:
            apart = np.maximum(self.margin - np.sqrt(squares), 0)
            apart *= apart
        return in_order(np, 0, np.where(self._similar(HOST, labels), squares, apart))

    def _similar(self, side: Side, labels: Blob) -> Any:
        return integers(side.data(labels)).reshape(-1)[: self.squares.shape[0]] != 0

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        xp, num = side.xp, bottom[0].num
        for i, sign in enumerate((1, -1)):
            if not propagate_down[i]:
                continue
            alpha = sign * HOST.diff(top[0]).reshape(-1)[0] / self.dtype.type(num)
            dx = side.mutable_diff(bottom[i]).reshape(num, -1)
            similar = self._similar(side, bottom[2])
            squares = side.data(self.squares).reshape(-1)
            if self.legacy:
                missing = self.margin - squares
                beta = xp.where(missing > 0, -alpha, self.dtype.type(0))
            else:
                distance = xp.sqrt(squares)
                missing = self.margin - distance
                beta = -alpha * missing / (distance + self.dtype.type(1e-4))
                beta = xp.where(missing > 0, beta, self.dtype.type(0))
            factor = xp.where(similar, alpha, beta)[:, None]
            xp.multiply(side.data(self.difference).reshape(num, -1), factor, out=dx)
            if side.gpu:
                if self.legacy:  # where upstream forgets to multiply
                    xp.copyto(dx, factor, where=~similar[:, None])
                else:
                    xp.copyto(dx, 0, where=~similar[:, None] & (missing <= 0)[:, None])
                continue
            dx += 0  # -0 comes out as 0, as BLAS adds to 0
            xp.copyto(dx, 0, where=factor == 0)
