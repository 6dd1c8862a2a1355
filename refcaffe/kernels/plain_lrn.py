"""Local response normalization without a compiler: all pixels at once, channel after channel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


def _running_sums(
    rows: Any, size: int, ahead: int, total: Any, leaves_first: bool = False
) -> Iterator[tuple[int, Any]]:
    """Each row's number with ``total`` + the ``size`` rows up to that which is ``ahead`` rows further on.

    A row comes in at the head and leaves ``size`` rows later, before or after the next one comes in.
    """
    for head in range(len(rows) + ahead):
        if head >= size and leaves_first:
            total -= rows[head - size]
        if head < len(rows):
            total += rows[head]
        if head >= size and not leaves_first:
            total -= rows[head - size]
        if head >= ahead:
            yield head - ahead, total


def scale(x: Any, n: int, first: int, end: int, half: int, k: float, alpha: float, scale: Any) -> None:
    """As ``lrn._scale``."""
    x, scale = x[n, :, first:end], scale[n, :, first:end]
    for c, total in _running_sums(alpha * (x * x), 2 * half + 1, half, np.full_like(x[0], k)):
        scale[c] = total


def subtract_neighbours(
    x: Any, y: Any, dy: Any, scale: Any, n: int, first: int, end: int, half: int, factor: float, ratio: Any, dx: Any
) -> None:
    """As ``lrn._subtract_neighbours``."""
    x, y, dy, scale, dx = (array[n, :, first:end] for array in (x, y, dy, scale, dx))
    for c, total in _running_sums(dy * y / scale, 2 * half + 1, half, np.zeros_like(x[0]), leaves_first=True):
        dx[c] -= factor * (x[c] * total)


def device_scale(x: Any, size: int, k: float, alpha: float, total: Any, scale: Any) -> None:
    """As ``lrn_device._scale``."""
    for image, out in zip(x, scale, strict=True):
        for c, sums in _running_sums(image * image, size, (size - 1) // 2, np.zeros_like(total)):
            out[c] = k + sums * alpha


def device_backward(
    x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: float, total: Any, dx: Any
) -> None:
    """As ``lrn_device._backward``."""
    half = size - 1 - (size - (size + 1) // 2)
    for n, ratio in enumerate(dy * y / scale):
        for c, sums in _running_sums(ratio, size, half, np.zeros_like(total)):
            dx[n, c] = dy[n, c] * power[n, c] - factor * x[n, c] * sums
