"""Input: tops that the caller fills."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("input_layer.cpp")


@register("Input")
class Input(Layer):
    """One shape for all tops, one for each, or none: then they have no elements until reshaped."""

    exact_bottoms = 0
    min_tops = 1
    forward_on_gpu = False
    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        shapes = self.param.input_param.shape
        text = f"Must specify 'shape' once, once per top blob, or not at all: {len(top)} tops vs. {len(shapes)} shapes."
        expression = "num_shape == 0 || num_shape == 1 || num_shape == num_top"
        _check(len(shapes) in (0, 1, len(top)), expression, text)
        for i, blob in enumerate(top):
            if shapes:
                blob.reshape_proto(shapes[0 if len(shapes) == 1 else i])

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """The caller's task."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """The caller's task."""

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """There is nothing below."""
