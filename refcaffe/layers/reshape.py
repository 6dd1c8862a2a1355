"""Reshape: the same elements in another shape."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("reshape_layer.cpp")


@register("Reshape")
class Reshape(Layer):
    """``shape`` replaces ``num_axes`` axes from ``axis`` on: 0 keeps the axis, one -1 takes what is left.

    The top shares the bottom's data and diff from ``reshape`` on, whatever ``propagate_down`` says.
    """

    exact_bottoms = 1
    exact_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        text = "Reshape Layer does not allow in-place computation."
        _check(top[0] is not bottom[0], "top[0] != bottom[0]", text)
        self.dims = [to_int(dim) for dim in self.param.reshape_param.shape.dim]
        self.inferred = -1
        for i, dim in enumerate(self.dims):
            if dim == -1:
                text = "at most a single (1) value of -1 may be specified"
                expression = "inferred_axis_ == -1"
                _check.eq(self.inferred, -1, expression, f"new shape contains multiple -1 dims; {text}")
                self.inferred = i

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        x = bottom[0]
        start, end = self._replaced(x)
        dims = list(self.dims)
        for i, dim in enumerate(self.dims):
            if dim == 0:
                text = "new shape contains a 0, but there was no corresponding bottom axis to copy"
                _check.gt(x.num_axes, start + i, "bottom[0]->num_axes() > start_axis + copy_axis_index", text)
                dims[i] = x.shape[start + i]
        if self.inferred >= 0:
            given = -prod(dims) * prod(x.shape[:start]) * prod(x.shape[end:])
            # Upstream divides by it.
            text = "nothing can be inferred beside an axis without elements"
            _check.ne(given, 0, "explicit_count != 0", text)
            text = f"must be divisible by the product of the specified dimensions ({given})"
            expression = "0 == bottom[0]->count() % explicit_count"
            _check.eq(0, x.count % abs(given), expression, f"bottom count ({x.count}) {text}")
            dims[self.inferred] = x.count // given
        top[0].reshape(*x.shape[:start], *dims, *x.shape[end:])
        expression = "top[0]->count() == bottom[0]->count()"
        _check.eq(top[0].count, x.count, expression, "output count must match input count")
        top[0].share_data(x)
        top[0].share_diff(x)

    def _replaced(self, x: Blob) -> tuple[int, int]:
        """The range of the bottom's axes that ``shape`` replaces."""
        axis, num_axes = self.param.reshape_param.axis, self.param.reshape_param.num_axes
        start = axis if axis >= 0 else x.num_axes + axis + 1
        _check.ge(start, 0, "start_axis >= 0", f"axis {axis} out of range")
        text = f"axis {axis} out of range for {x.num_axes}-D input blob"
        _check.le(start, x.num_axes, "start_axis <= bottom[0]->num_axes()", text)
        _check.ge(num_axes, -1, "num_axes >= -1", "num_axes must be >= 0, or -1 for all")
        end = x.num_axes if num_axes == -1 else start + num_axes
        text = "end_axis = axis + num_axes is out of range"
        _check.le(end, x.num_axes, "end_axis <= bottom[0]->num_axes()", text)
        return start, end

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """The top is the bottom's memory."""

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """The top is the bottom's memory."""
