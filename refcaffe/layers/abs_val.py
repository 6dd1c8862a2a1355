"""AbsVal: |x|."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.sums import check_size, sign
from refcaffe.side import Side

_check = Checker("absval_layer.cpp")


@register("AbsVal")
class AbsVal(NeuronLayer):
    """Not in place. The gradient is the sign of x, 0 at 0 and for NaN."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        text = "AbsVal Layer does not allow in-place computation."
        _check(top[0] is not bottom[0], "top[0] != bottom[0]", text)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        y = side.mutable_data(top[0])
        check_size(side, y.size)
        side.xp.absolute(side.data(bottom[0]), out=y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        dy = side.diff(top[0])
        if not propagate_down[0]:
            return
        x, dx = side.data(bottom[0]), side.mutable_diff(bottom[0])
        check_size(side, dx.size, "math_functions.hpp")
        sign(side, x, dx)
        dx *= dy
