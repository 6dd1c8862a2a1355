"""Threshold: 1 above the threshold, else 0."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.side import Side

_check = Checker("threshold_layer.hpp")


@register("Threshold")
class Threshold(NeuronLayer):
    """There is no gradient."""

    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.threshold = self.dtype.type(self.param.threshold_param.threshold)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        side.xp.greater(x, self.threshold, out=y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        _check.fatal("Not Implemented Yet")
