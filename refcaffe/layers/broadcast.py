"""What Scale and Bias share: a blob that lies along some axes of another one."""

from __future__ import annotations

from typing import Any

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.kernels.planes import sums
from refcaffe.side import Side

Planes = tuple[int, int, int]  # the other blob's sizes before, along and after those axes


class Along:
    """Upstream's checks. ``name`` and ``axis_name``: what its source calls the blob and the first axis."""

    def __init__(self, name: str, axis_name: str, check: Checker) -> None:
        self.name = name
        self.axis_name = axis_name
        self.check = check

    def parameter_shape(self, bottom: Blob, axis: int, axes: int) -> tuple[int, ...]:
        """The shape of a parameter along ``axes`` axes of the bottom from ``axis`` on; -1: to the end."""
        start = bottom.canonical_axis(axis)
        text = "num_axes must be non-negative, or -1 to extend to the end of bottom[0]"
        self.check.ge(axes, -1, "num_axes >= -1", text)
        if axes < 0:
            return bottom.shape[start:]
        self._check_end(bottom, start, axes, "num_axes")
        return bottom.shape[start : start + axes]

    def planes(self, bottom: Blob, blob: Blob, axis: int) -> Planes:
        """How the blob divides the bottom; a scalar takes all of it."""
        start = bottom.canonical_axis(axis) if blob.num_axes else 0
        self._check_end(bottom, start, blob.num_axes, f"{self.name}->num_axes()")
        for i, size in enumerate(blob.shape):
            here, there = f"bottom[0]->shape({self.axis_name} + i)", f"{self.name}->shape(i)"
            text = f"dimension mismatch between bottom[0]->shape({start + i}) and {self.name}->shape({i})"
            self.check.eq(bottom.shape[start + i], size, f"{here} == {there}", text)
        end = start + blob.num_axes
        return bottom.count_range(0, start), blob.count, bottom.count_range(end)

    def _check_end(self, bottom: Blob, start: int, axes: int, what: str) -> None:
        text = (
            f"{self.name} blob's shape extends past bottom[0]'s shape when applied "
            f"starting with bottom[0] axis = {start}"
        )
        expression = f"bottom[0]->num_axes() >= {self.axis_name} + {what}"
        self.check.ge(bottom.num_axes, start + axes, expression, text)


def fill_ones(blob: Blob, size: int) -> None:
    """Make the blob ``size`` ones; written only when it becomes larger."""
    blob.reshape(size)
    data = blob.cpu_data()
    if size and data[-1] != 1:
        blob.mutable_cpu_data().fill(1)


def plane_sums(side: Side, planes: Any, ones: Any) -> Any:
    """(outer, n, inner) to (outer, n): the sums over the last axis. ``ones``: as many, at least."""
    outer, n, inner = planes.shape
    if inner == 1:
        return planes[:, :, 0]
    if side.gpu:
        return side.xp.matmul(planes.reshape(outer * n, inner), ones[:inner]).reshape(outer, n)
    return sums(planes, ones[:inner])
