"""Flatten: a range of axes becomes one."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("flatten_layer.cpp")


@register("Flatten")
class Flatten(Layer):
    """The top shares the bottom's data; in backward the bottom takes over the top's diff, wanted or not."""

    exact_bottoms = 1
    exact_tops = 1
    forward_on_gpu = False
    backward_on_gpu = False

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        x, param = bottom[0], self.param.flatten_param
        text = "Flatten Layer does not allow in-place computation."
        _check(top[0] is not x, "top[0] != bottom[0]", text)
        start, end = x.canonical_axis(param.axis), x.canonical_axis(param.end_axis) + 1
        top[0].reshape(*x.shape[:start], x.count_range(start, end), *x.shape[end:])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        top[0].share_data(bottom[0])

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        bottom[0].share_diff(top[0])
