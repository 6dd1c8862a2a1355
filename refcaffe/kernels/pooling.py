"""Maximum and average over windows of planes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refcaffe.device.room import require
from refcaffe.kernels import plain_pooling as plain
from refcaffe.kernels import pooling_device as device
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import on_cuda
from refcaffe.kernels.parallel import GRAIN, for_ranges, scratch
from refcaffe.side import Side

_INDEX = 8  # bytes

FLT_MAX = float(np.finfo(np.float32).max)


class Windows:
    """The windows of a plane; all but ``dtype`` are (height, width) pairs.

    ``rows`` and ``columns``: (count, 2), where a window starts and ends in the plane; empty if start >= end.
    ``divisors``: (rows, columns), the windows' sizes, to which padding counts but not what lies beyond it.
    Tables are made when a pass asks for them: only it needs as much memory. Their makers raise MemoryError.
    """

    def __init__(
        self,
        size: tuple[int, int],
        count: tuple[int, int],
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pad: tuple[int, int],
        dtype: DTypeLike,
    ) -> None:
        self.geometry = (*size, *count, *kernel, *stride, *pad)
        self._axes = tuple(zip(size, count, kernel, stride, pad, strict=True))
        self._dtype = dtype

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        return _spans(*self._axes[0])

    @cached_property
    def columns(self) -> NDArray[np.int64]:
        return _spans(*self._axes[1])

    @cached_property
    def divisors(self) -> NDArray[Any]:
        require(prod(n for _, n, *_ in self._axes) * _INDEX)
        lengths = []
        for length, n, k, s, p in self._axes:
            start = np.arange(n, dtype=np.int64) * s - p
            lengths.append(np.minimum(start + k, length + p) - start)
        return np.multiply.outer(*lengths).astype(self._dtype)

    @cached_property
    def phases(self) -> Phases:
        return Phases(*zip(*self._axes, strict=True))


def _spans(length: int, n: int, k: int, s: int, p: int) -> NDArray[np.int64]:
    require(n * 4 * _INDEX)
    start = np.arange(n, dtype=np.int64) * s - p
    return np.stack([np.maximum(start, 0), np.minimum(start + k, length)], axis=1)


class Phases:
    """A plane, with its padding, taken apart so that strided windows become runs of neighbours.

    There is a smaller plane for every place that a pixel can have within a stride, row after row of them. The
    windows' pixels of one place in the window, a tap, follow each other there from ``taps[place]`` on; a row of
    windows begins every ``pitch`` elements and spans ``length`` elements with all rows before it. ``cells``: where
    each element lies in the plane, -1 if outside.
    """

    def __init__(
        self,
        size: tuple[int, int],
        count: tuple[int, int],
        kernel: tuple[int, int],
        stride: tuple[int, int],
        pad: tuple[int, int],
    ) -> None:
        # Of a stride beyond the kernel no window sees the rest.
        phases = [min(k, s) for k, s in zip(kernel, stride, strict=True)]
        heights = [max(n, 0) - 1 + -(-k // s) for n, k, s in zip(count, kernel, stride, strict=True)]
        require((prod(phases) * prod(heights) + prod(kernel)) * 3 * _INDEX)
        places, taps = [], []
        for length, k, s, p, wide, height in zip(size, kernel, stride, pad, phases, heights, strict=True):
            place = np.arange(wide)[:, None] + np.arange(height) * s - p
            places.append(np.where((place >= 0) & (place < length), place, -1))
            taps.append((np.arange(k) % s, np.arange(k) // s))
        rows, columns = places[0][:, None, :, None], places[1][None, :, None, :]
        cells = np.where((rows >= 0) & (columns >= 0), rows * size[1] + columns, -1)
        (phase_rows, down), (phase_columns, right) = taps
        self.pitch = cells.shape[3]
        phase = phase_rows[:, None] * phases[1] + phase_columns
        starts = (phase * cells.shape[2] + down[:, None]) * self.pitch + right
        self.taps = starts.reshape(-1).astype(np.uintp)
        self.cells = cells.reshape(-1).astype(np.int32)
        self.length = max(0, (count[0] - 1) * self.pitch + count[1])


windows_of = lru_cache(maxsize=256)(Windows)  # layers ask in every pass, and many of a net are alike


@compiled(plain=plain.max_forward)
def _max_forward(
    x: Any,
    cells: Any,
    taps: Any,
    pitch: int,
    lowest: float,
    outside: float,
    apart: Any,
    best: Any,
    at: Any,
    y: Any,
    mask: Any,
) -> None:
    planes, rows, columns = y.shape
    for n in range(planes):
        for q in range(np.uintp(len(cells))):
            apart[q] = x[n, np.uintp(cells[q])] if cells[q] >= 0 else outside
        for q in range(np.uintp(len(best))):
            best[q] = lowest
            at[q] = -1
        for t in range(0, len(taps), 3):  # three at a time: fewer loads and stores of what is best so far
            first, second, third = taps[t], taps[min(t + 1, len(taps) - 1)], taps[min(t + 2, len(taps) - 1)]
            for q in range(np.uintp(len(best))):
                highest, place = best[q], at[q]
                value = apart[q + first]
                higher = value > highest  # the first of equal ones stays; NaN never wins
                highest, place = (value, np.int32(q + first)) if higher else (highest, place)
                value = apart[q + second]
                higher = value > highest
                highest, place = (value, np.int32(q + second)) if higher else (highest, place)
                value = apart[q + third]
                higher = value > highest
                best[q], at[q] = (value, np.int32(q + third)) if higher else (highest, place)
        for i in range(rows):
            for j in range(np.uintp(columns)):
                window = np.uintp(i * pitch) + j
                y[n, i, j] = best[window]
                mask[n, i, j] = cells[np.uintp(at[window])] if at[window] >= 0 else -1


@compiled(plain=plain.max_backward)
def _max_backward(dy: Any, mask: Any, dx: Any) -> None:
    pixels = dx.shape[1]
    for n in range(len(dx)):
        dx[n] = 0
        for i in range(dy.shape[1]):
            at = mask[n, i]
            if 0 <= at < pixels:
                dx[n, int(at)] += dy[n, i]


@compiled(plain=plain.average_forward)
def _average_forward(x: Any, rows: Any, columns: Any, divisors: Any, zero: float, y: Any) -> None:
    for n in range(len(x)):
        for i in range(len(rows)):
            for j in range(len(columns)):
                total = zero
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        total += x[n, h, w]
                y[n, i, j] = total / divisors[i, j]


@compiled(plain=plain.average_backward)
def _average_backward(dy: Any, rows: Any, columns: Any, divisors: Any, dx: Any) -> None:
    for n in range(len(dx)):
        dx[n] = 0
        for i in range(len(rows)):
            for j in range(len(columns)):
                share = dy[n, i, j] / divisors[i, j]
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        dx[n, h, w] += share


def _planes(array: Any) -> Any:
    """(N, C, H, W) as (N * C, H, W)."""
    n, c, h, w = array.shape
    return array.reshape(n * c, h, w)


def _flat_planes(array: Any) -> Any:
    n, c, h, w = array.shape
    return array.reshape(n * c, h * w)


def _for_planes(kernel: Callable[..., None], planes: Any, other: Any) -> None:
    """``kernel(start, stop)`` over ranges of planes of two arrays that are large enough to be worth it."""
    for_ranges(len(planes), max(1, GRAIN * len(planes) // max(1, planes.size, other.size)), kernel)


def max_forward(side: Side, windows: Windows, x: Any, y: Any, mask: Any) -> None:
    """``y``: each window's maximum, ``mask``: its place in the plane; -FLT_MAX and -1 if none is above."""
    if on_cuda(x):
        device.launch(f"max_forward{_kind(mask)}", windows, y, x, y, mask)
        return
    dtype, phases = x.dtype, windows.phases
    lowest, outside = dtype.type(-FLT_MAX), dtype.type(-np.inf)
    x, y, mask = _flat_planes(x), _planes(y), _planes(mask)

    def some(i: int, j: int) -> None:
        apart = scratch("apart", (len(phases.cells),), dtype)
        best, at = scratch("best", (phases.length,), dtype), scratch("at", (phases.length,), np.int32)
        where = phases.cells, phases.taps, phases.pitch
        _max_forward(x[i:j], *where, lowest, outside, apart, best, at, y[i:j], mask[i:j])

    _for_planes(some, x, y)


def _kind(mask: Any) -> str:
    """The CUDA kernels' ending for a mask that is a top, hence floating."""
    return "_top" if mask.dtype.kind == "f" else ""


def max_backward(side: Side, windows: Windows, dy: Any, mask: Any, dx: Any) -> None:
    """Write ``dx``: each ``dy`` goes where ``mask`` says, or nowhere if that is outside of the plane."""
    if on_cuda(dx):
        device.launch(f"max_backward{_kind(mask)}", windows, dx, dy, mask, dx)
        return
    dy, mask, dx = _flat_planes(dy), _flat_planes(mask), _flat_planes(dx)
    _for_planes(lambda i, j: _max_backward(dy[i:j], mask[i:j], dx[i:j]), dy, dx)


def average_forward(side: Side, windows: Windows, x: Any, y: Any) -> None:
    """``y``: each window's sum, divided once."""
    if on_cuda(x):
        device.launch("average_forward", windows, y, x, y)
        return
    x, y, zero = _planes(x), _planes(y), x.dtype.type(0)
    shape = windows.rows, windows.columns, windows.divisors, zero
    _for_planes(lambda i, j: _average_forward(x[i:j], *shape, y[i:j]), x, y)


def average_backward(side: Side, windows: Windows, dy: Any, dx: Any) -> None:
    """Write ``dx``: each ``dy``, divided once, is added to all of its window."""
    if on_cuda(dx):
        device.launch("average_backward", windows, dx, dy, dx)
        return
    dy, dx = _planes(dy), _planes(dx)
    shape = windows.rows, windows.columns, windows.divisors
    _for_planes(lambda i, j: _average_backward(dy[i:j], *shape, dx[i:j]), dy, dx)


# --- stochastic pooling, which only devices have. ``chosen`` holds a random number in (0, 1] for each window, and then
# the place of the element that it chose.


def stochastic_train(side: Side, windows: Windows, x: Any, chosen: Any, y: Any) -> None:
    """``y``: the first element at which the window's running sum comes to the random share of the whole sum."""
    if on_cuda(x):
        device.launch("stochastic_train", windows, y, x, chosen, y)
    else:
        device.stochastic_train(windows, _planes(x), _planes(chosen), _planes(y))


def stochastic_test(side: Side, windows: Windows, x: Any, y: Any) -> None:
    """``y``: the mean of a window's elements, each weighted by itself; 0 if their sum is not above 0."""
    if on_cuda(x):
        device.launch("stochastic_test", windows, y, x, y)
    else:
        device.stochastic_test(windows, _planes(x), _planes(y))


def stochastic_backward(side: Side, windows: Windows, dy: Any, chosen: Any, dx: Any) -> None:
    """Write ``dx``: each ``dy`` goes to the chosen element."""
    if on_cuda(dx):
        device.launch("stochastic_backward", windows, dx, dy, chosen, dx)
    else:
        device.stochastic_backward(windows, _planes(dy), _planes(chosen), _planes(dx))
