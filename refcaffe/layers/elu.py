"""ELU: x above 0, alpha * (exp(x) - 1) below."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import blocks
from refcaffe.layers.sums import choose, in_double
from refcaffe.side import Side


@register("ELU")
class ELU(NeuronLayer):
    """Both terms are always added up; a device takes one of them. The gradient below 0 is alpha + y."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.alpha = self.dtype.type(self.param.elu_param.alpha)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        for x, y in blocks(side, side.data(bottom[0]), side.mutable_data(top[0])):
            low = xp.minimum(x, 0)
            xp.exp(low, out=low, **in_double(xp))
            low -= 1
            low *= self.alpha
            if side.gpu:
                choose(x > 0, x, low, y)
            else:
                xp.add(xp.maximum(x, 0), low, out=y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        arrays = side.data(bottom[0]), side.data(top[0]), side.diff(top[0]), side.mutable_diff(bottom[0])
        for x, y, dy, dx in blocks(side, *arrays):
            factor = self.alpha + y
            if side.gpu:
                choose(x > 0, dy, dy * factor, dx)
                continue
            factor *= x <= 0
            factor += x > 0
            side.xp.multiply(dy, factor, out=dx)
