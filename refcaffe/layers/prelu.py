"""PReLU: ReLU whose slope is learned, for each channel or one for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import row_blocks
from refcaffe.layers.broadcast import fill_ones
from refcaffe.layers.sums import choose, in_order, parts, sum_in_order
from refcaffe.proto.caffe_pb2 import FillerParameter
from refcaffe.side import Side

_check = Checker("prelu_layer.cpp")


@register("PReLU")
class PReLU(NeuronLayer):
    """max(x, 0) + slope * min(x, 0), on a device x or slope * x.

    Parameter: slopes, (channels,), or a scalar if ``channel_shared``.
    """

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self._check_axes(bottom[0])
        param, channels = self.param.prelu_param, bottom[0].channels
        self.shared = param.channel_shared
        if not self.blobs:
            slopes = Blob(() if self.shared else (channels,), self.dtype)
            default = FillerParameter(type="constant", value=0.25)
            filler = param.filler if param.HasField("filler") else default
            fill(slopes, filler, context.current().stream)
            self.blobs.append(slopes)
        count, text = self.blobs[0].count, "Negative slope size is inconsistent with prototxt config"
        if self.shared:
            _check.eq(count, 1, "this->blobs_[0]->count() == 1", text)
        else:
            _check.eq(count, channels, "this->blobs_[0]->count() == channels", text)
        self.param_propagate_down += [True] * (len(self.blobs) - len(self.param_propagate_down))
        self.bottom_memory, self.ones = Blob(dtype=self.dtype), Blob(dtype=self.dtype)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self._check_axes(bottom[0])
        super().reshape(bottom, top)
        if bottom[0] is top[0]:
            self.bottom_memory.reshape_like(bottom[0])
        fill_ones(self.ones, max(bottom[0].count_range(1), self.ones.count))
        self.planes = (bottom[0].num, bottom[0].channels, bottom[0].count_range(2))

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        x, y = side.data(bottom[0]).reshape(self.planes), side.mutable_data(top[0]).reshape(self.planes)
        slopes = self._slopes(side)
        if bottom[0] is top[0]:
            side.copy(side.mutable_data(self.bottom_memory), x)
        for x_rows, y_rows in row_blocks(side, x, y):
            if side.gpu:
                choose(x_rows > 0, x_rows, x_rows * slopes, y_rows)
                continue
            high, low = parts(x_rows)
            low *= slopes
            xp.add(high, low, out=y_rows)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        x, slopes, dy = side.data(bottom[0]), self._slopes(side), side.diff(top[0]).reshape(self.planes)
        if top[0] is bottom[0]:
            x = side.data(self.bottom_memory)
        x = x.reshape(self.planes)
        # The slopes first: in place, the bottom's diff overwrites the top's.
        if self.param_propagate_down[0]:
            dslopes = side.mutable_diff(self.blobs[0]).reshape(-1)
            if side.gpu:
                self._add_slopes_diff(side, x, dy, dslopes)
            for x_rows, dy_rows in () if side.gpu else row_blocks(side, x, dy):
                terms = dy_rows * x_rows
                terms *= x_rows <= 0
                if not self.shared:
                    terms = terms.swapaxes(0, 1)
                terms = terms.reshape(dslopes.size, -1)
                dslopes[...] = in_order(side.xp, dslopes, terms)
        if propagate_down[0]:
            dx = side.mutable_diff(bottom[0]).reshape(self.planes)
            for x_rows, dy_rows, dx_rows in row_blocks(side, x, dy, dx):
                factor = (x_rows <= 0) * slopes
                factor += x_rows > 0
                side.xp.multiply(dy_rows, factor, out=dx_rows)

    def _add_slopes_diff(self, side: Side, x: Any, dy: Any, dslopes: Any) -> None:
        """As on a device: first over the batch, in order, then over places, and channels if they share the slope."""
        terms = dy * x
        terms *= x <= 0
        total = sum_in_order(side.xp, terms, 0).reshape(dslopes.size, -1)
        dslopes += side.xp.matmul(total, side.data(self.ones)[: total.shape[1]])

    def _slopes(self, side: Side) -> Any:
        """The slopes, to be multiplied with arrays of shape ``planes``."""
        return side.data(self.blobs[0]).reshape(1, -1, 1)

    @staticmethod
    def _check_axes(blob: Blob) -> None:
        text = "Number of axes of bottom blob must be >=2."
        _check.ge(blob.num_axes, 2, "bottom[0]->num_axes() >= 2", text)
