"""Clip: max(min, min(x, max))."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.sums import choose
from refcaffe.side import Side


@register("Clip")
class Clip(NeuronLayer):
    """NaN becomes ``min``, on a device ``max``; everything becomes ``min`` if ``min`` > ``max``.

    The gradient passes at both ends, too.
    """

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.min = self.dtype.type(self.param.clip_param.min)
        self.max = self.dtype.type(self.param.clip_param.max)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        for x, y in blocks(side, side.data(bottom[0]), side.mutable_data(top[0])):
            # Not minimum and maximum, which leave open which of two zeros they give.
            choose(~(x <= self.max) if side.gpu else x > self.max, self.max, x, y)
            choose(y > self.min, y, self.min, y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        arrays = side.data(bottom[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        for x, dy, dx in blocks(side, *arrays):
            side.xp.multiply(dy, (x >= self.min) & (x <= self.max), out=dx)
