"""Pooling without a compiler: all windows at once, one place within them after the other.

Sums are made in the kernels' order. Planes are (N, height, width); ``rows`` and ``columns``: see ``pooling.Windows``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

Index = tuple[Any, ...]


def _places(rows: Any, columns: Any) -> Iterator[tuple[Index, Index]]:
    """For each place within a window: which windows have it, and the pixels that these see there."""
    for h in range(_longest(rows)):
        i = np.flatnonzero(rows[:, 0] + h < rows[:, 1])[:, None]
        for w in range(_longest(columns)):
            j = np.flatnonzero(columns[:, 0] + w < columns[:, 1])
            yield (slice(None), i, j), (slice(None), rows[i, 0] + h, columns[j, 0] + w)


def _longest(spans: Any) -> int:
    return int((spans[:, 1] - spans[:, 0]).max(initial=0))


def _seen_by(spans: Any, length: int) -> Any:
    """For each of ``length`` pixels, from which window to which they see it: (length, 2)."""
    pixels = np.arange(length)
    return np.stack([np.searchsorted(spans[:, side], pixels, "right") for side in (1, 0)], axis=1)


def max_forward(
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
    """As ``pooling._max_forward``."""
    y.fill(lowest)
    mask.fill(-1)
    windows = np.arange(y.shape[1])[:, None] * pitch + np.arange(y.shape[2])
    for tap in taps.tolist():
        cell = cells[windows + tap]
        value = np.where(cell >= 0, x[:, cell], outside)
        higher = value > y
        np.copyto(y, value, where=higher)
        np.copyto(mask, cell, where=higher)


def max_backward(dy: Any, mask: Any, dx: Any) -> None:
    """As ``pooling._max_backward``."""
    dx.fill(0)
    n, window = np.nonzero((mask >= 0) & (mask < dx.shape[1]))
    np.add.at(dx.reshape(-1), n * dx.shape[1] + mask[n, window].astype(int), dy[n, window])


def average_forward(x: Any, rows: Any, columns: Any, divisors: Any, zero: float, y: Any) -> None:
    """As ``pooling._average_forward``."""
    y.fill(zero)
    for window, pixel in _places(rows, columns):
        y[window] += x[pixel]
    y /= divisors


def average_backward(dy: Any, rows: Any, columns: Any, divisors: Any, dx: Any) -> None:
    """As ``pooling._average_backward``."""
    share = dy / divisors
    dx.fill(0)
    for pixel, window in _places(_seen_by(rows, dx.shape[1]), _seen_by(columns, dx.shape[2])):
        dx[pixel] += share[window]


def stochastic_train(x: Any, rows: Any, columns: Any, zero: float, chosen: Any, y: Any) -> None:
    """As ``pooling_device._stochastic_train``."""
    total = np.zeros_like(y)
    for window, pixel in _places(rows, columns):
        total[window] += x[pixel]
    enough = (chosen * total).astype(np.float32)
    numbers = np.arange(x.size).reshape(x.shape)
    waiting = np.ones(y.shape, bool)
    total.fill(zero)
    for window, pixel in _places(rows, columns):
        total[window] += x[pixel]
        found = waiting[window] & (total[window] >= enough[window])
        chosen[window] = np.where(found, numbers[pixel], chosen[window])
        y[window] = np.where(found, x[pixel], y[window])
        waiting[window] &= ~found


def stochastic_test(x: Any, rows: Any, columns: Any, zero: float, y: Any) -> None:
    """As ``pooling_device._stochastic_test``."""
    total, squares = np.zeros_like(y), np.zeros_like(y)
    for window, pixel in _places(rows, columns):
        total[window] += x[pixel]
        squares[window] += x[pixel] * x[pixel]
    y[...] = np.where(total > 0, squares / total, zero)


def stochastic_backward(dy: Any, chosen: Any, rows: Any, columns: Any, zero: float, one: float, dx: Any) -> None:
    """As ``pooling_device._stochastic_backward``."""
    numbers, chosen = np.arange(dx.size).reshape(dx.shape), chosen.astype(np.int64)
    dx.fill(0)
    for pixel, window in _places(_seen_by(rows, dx.shape[1]), _seen_by(columns, dx.shape[2])):
        dx[pixel] += dy[window] * np.where(numbers[pixel] == chosen[window], one, zero)
