"""ArgMax: where the largest values are, and what they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("argmax_layer.cpp")


@register("ArgMax")
class ArgMax(Layer):
    """The top_k largest along ``axis`` (then the axis is top_k long), or of all axes but the first.

    Then the top is (N, 1, top_k, 1 ...), or with ``out_max_val`` (N, 2, top_k): indices, values.
    With an axis, ``out_max_val`` gives values instead of indices. Of equal values the higher index
    comes first. There is no gradient.
    """

    exact_bottoms = 1
    exact_tops = 1
    forward_on_gpu = False
    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.argmax_param
        self.top_k: int = param.top_k
        _check.ge(self.top_k, 1, "top_k_ >= 1", "top k must not be less than 1.")
        self.axis = bottom[0].canonical_axis(param.axis) if param.HasField("axis") else None
        if self.axis is not None:
            expression = "top_k_ <= bottom[0]->shape(axis_)"
            text = "top_k must be less than or equal to the dimension of the axis."
            _check.le(self.top_k, bottom[0].shape[self.axis], expression, text)
        else:
            expression = "top_k_ <= bottom[0]->count(1)"
            text = "top_k must be less than or equal to the dimension of the flattened bottom blob per instance."
            _check.le(self.top_k, bottom[0].count_range(1), expression, text)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        if self.axis is not None:
            shape = list(bottom[0].shape)
            shape[self.axis] = self.top_k
        else:
            shape = [1] * max(3, bottom[0].num_axes)
            shape[0], shape[2] = bottom[0].dim(0), self.top_k
            if self.param.argmax_param.out_max_val:
                shape[1] = 2
        top[0].reshape(shape)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp, blob = side.xp, bottom[0]
        x, y = side.data(blob), side.mutable_data(top[0])
        values = self.param.argmax_param.out_max_val
        if self.axis is None:
            x = x.reshape(len(x), -1, 1)
            y = y.reshape(len(x), -1, self.top_k, 1)
            y[:, 0] = index = self._largest(xp, x)
            if values:
                y[:, 1] = xp.take_along_axis(x, index, axis=1)
            return
        x = x.reshape(blob.count_range(0, self.axis), blob.shape[self.axis], -1)
        index = self._largest(xp, x)
        y.reshape(index.shape)[...] = xp.take_along_axis(x, index, axis=1) if values else index

    def _largest(self, xp: Any, x: Any) -> Any:
        """Indices of the largest along the middle axis, falling: (outer, top_k, inner)."""
        reverse = x[:, ::-1]  # so that the first of equal values is the one with the highest index
        if self.top_k == 1:
            order = xp.argmax(reverse, axis=1)[:, None]
        else:
            order = xp.argsort(-reverse, axis=1, stable=True)[:, : self.top_k]
        return x.shape[1] - 1 - order

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        Checker("argmax_layer.hpp").fatal("Not Implemented Yet")
