"""Maximum and average over windows of planes."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refcaffe.kernels.compiled import compiled
from refcaffe.side import Side

FLT_MAX = float(np.finfo(np.float32).max)


class Windows:
    """The windows of a plane; all but ``dtype`` are (height, width) pairs.

    ``rows`` and ``columns``: (count, 2), where a window starts and ends in the plane; empty if start >= end.
    ``divisors``: (rows, columns), the windows' sizes, to which padding counts but not what lies beyond it.
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
        spans: list[NDArray[np.int64]] = []
        lengths: list[NDArray[np.int64]] = []
        for length, n, k, s, p in zip(size, count, kernel, stride, pad, strict=True):
            start = np.arange(n, dtype=np.int64) * s - p
            spans.append(np.stack([np.maximum(start, 0), np.minimum(start + k, length)], axis=1))
            lengths.append(np.minimum(start + k, length + p) - start)
        self.rows, self.columns = spans
        self.divisors = np.multiply.outer(*lengths).astype(dtype)


windows_of = lru_cache(maxsize=256)(Windows)  # layers ask in every pass, and many of a net are alike


@compiled
def _max_forward(x: Any, rows: Any, columns: Any, lowest: float, y: Any, mask: Any) -> None:
    width = x.shape[2]
    for n in range(len(x)):
        for i in range(len(rows)):
            for j in range(len(columns)):
                best = lowest
                at = -1
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        if x[n, h, w] > best:  # the first of equal ones stays; NaN never wins
                            best = x[n, h, w]
                            at = h * width + w
                y[n, i, j] = best
                mask[n, i, j] = at


@compiled
def _max_backward(dy: Any, mask: Any, dx: Any) -> None:
    pixels = dx.shape[1]
    for n in range(len(dx)):
        dx[n] = 0
        for i in range(dy.shape[1]):
            at = mask[n, i]
            if 0 <= at < pixels:
                dx[n, int(at)] += dy[n, i]


@compiled
def _average_forward(x: Any, rows: Any, columns: Any, divisors: Any, zero: float, y: Any) -> None:
    for n in range(len(x)):
        for i in range(len(rows)):
            for j in range(len(columns)):
                total = zero
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        total += x[n, h, w]
                y[n, i, j] = total / divisors[i, j]


@compiled
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


def max_forward(side: Side, windows: Windows, x: Any, y: Any, mask: Any) -> None:
    """``y``: each window's maximum, ``mask``: its place in the plane; -FLT_MAX and -1 if none is above."""
    lowest = x.dtype.type(-FLT_MAX)
    _max_forward(_planes(x), windows.rows, windows.columns, lowest, _planes(y), _planes(mask))


def max_backward(side: Side, dy: Any, mask: Any, dx: Any) -> None:
    """Write ``dx``: each ``dy`` goes where ``mask`` says, or nowhere if that is outside of the plane."""
    _max_backward(_flat_planes(dy), _flat_planes(mask), _flat_planes(dx))


def average_forward(side: Side, windows: Windows, x: Any, y: Any) -> None:
    """``y``: each window's sum, divided once."""
    zero = x.dtype.type(0)
    _average_forward(_planes(x), windows.rows, windows.columns, windows.divisors, zero, _planes(y))


def average_backward(side: Side, windows: Windows, dy: Any, dx: Any) -> None:
    """Write ``dx``: each ``dy``, divided once, is added to all of its window."""
    _average_backward(_planes(dy), windows.rows, windows.columns, windows.divisors, _planes(dx))
