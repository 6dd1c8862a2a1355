"""Silence: uses its bottoms up, so that they are not printed as results."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side


@register("Silence")
class Silence(Layer):
    """No tops; the gradient is 0."""

    min_bottoms = 1
    exact_tops = 0

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """Nothing has a shape here."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """Nothing is computed."""

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        for wanted, blob in zip(propagate_down, bottom, strict=True):
            if wanted:
                side.mutable_diff(blob).fill(0)
