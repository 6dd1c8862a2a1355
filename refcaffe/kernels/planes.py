"""Planes with one value each: sums over them, and formulas in one pass over memory, several planes at a time.

On the host. Arrays (N, C, places) are seen as (N * C, places), values (C,) are repeated for every image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refcaffe.kernels import plain_planes as plain
from refcaffe.kernels.compiled import compiled, copied
from refcaffe.kernels.parallel import GRAIN, for_ranges, scratch

FOUR = 4  # rows that BLAS takes together: borders between them would change the rounding of some
SAFE_BORDER = 16
TOGETHER = 1 << 18  # elements of all images' planes


def _flat(planes: Any) -> Any:
    return planes.reshape(planes.shape[0] * planes.shape[1], planes.shape[2])


def _for_rows(rows: Any, body: Callable[[int, int], Any]) -> None:
    step = -(-max(1, GRAIN // max(1, rows.shape[1])) // SAFE_BORDER) * SAFE_BORDER
    for_ranges(len(rows), step, body)


def sums(planes: Any, ones: Any) -> Any:
    """The sums over the last axis, (N, C), as BLAS makes them. ``ones``: as many as there are places."""
    rows = _flat(planes)
    result = np.empty(len(rows), rows.dtype)
    _for_rows(rows, lambda i, j: np.matmul(rows[i:j], ones, out=result[i:j]))
    return result.reshape(planes.shape[:2])


def sums_of(formula: Callable[..., None], planes: Any, values: Any, ones: Any, into: Any = None) -> Any:
    """The same of what ``formula`` writes into its last argument; the others are rows of ``planes`` and ``values``.

    What it writes is kept only if there is an array for it, ``into``.
    """
    arrays, count = [_flat(array) for array in planes], planes[0].shape[0]
    target = None if into is None else _flat(into)
    columns = [np.tile(value, count) for value in values]
    result = np.empty(len(arrays[0]), arrays[0].dtype)

    def some(i: int, j: int) -> None:
        work = scratch("planes", arrays[0][i:j].shape, result.dtype) if target is None else target[i:j]
        formula(*(array[i:j] for array in arrays), *(column[i:j] for column in columns), work)
        np.matmul(work, ones, out=result[i:j])

    _for_rows(arrays[0], some)
    return result.reshape(planes[0].shape[:2])


def for_channels(shape: tuple[int, ...], body: Callable[[slice], Any]) -> None:
    """``body`` for ranges of the channels of (N, C, places), so few that all their planes stay in a core's cache.

    Where BLAS would meet other fours of rows than in the whole, it gets the whole.
    """
    images, channels, places = shape
    each = max(1, images * places)
    step = channels if channels % FOUR else TOGETHER // each
    for_ranges(channels, -(-max(1, step) // SAFE_BORDER) * SAFE_BORDER, lambda i, j: body(slice(i, min(j, channels))))


def channel_sums(planes: Any, ones: Any) -> Any:
    """The sums over the last axis of what ``for_channels`` gives, (N, channels)."""
    images, channels, places = planes.shape
    if channels % FOUR:  # all there are
        return np.matmul(planes.reshape(images * channels, places), ones).reshape(images, channels)
    return np.matmul(planes, ones)


def channel_sums_of(formula: Callable[..., None], arrays: Any, channels: slice, values: Any, ones: Any) -> Any:
    """The same of what ``formula`` makes of these channels of arrays and values."""
    images, _, places = arrays[0].shape
    work = scratch("planes", (images, channels.stop - channels.start, places), arrays[0].dtype)
    formula(*arrays, channels.start, *values, work)
    return channel_sums(work, ones)


def each_plane(formula: Callable[..., None], source: Any, target: Any, others: Any, values: Any, *numbers: Any) -> None:
    """``target`` = what ``formula(target, *others, *values, *numbers)`` makes of ``source`` in it, plane by plane."""
    arrays, count = [_flat(array) for array in (source, target, *others)], source.shape[0]
    columns = [np.tile(value, count) for value in values]

    def some(i: int, j: int) -> None:
        given, to, *rest = (array[i:j] for array in arrays)
        formula(copied(given, to), *rest, *(column[i:j] for column in columns), *numbers)

    _for_rows(arrays[0], some)


# --- formulas: planes (rows, places), then values (rows,)


@compiled(plain=plain.product)
def product(x: Any, y: Any, out: Any) -> None:
    """out = x * y"""
    for i in range(len(x)):
        for p in range(x.shape[1]):
            out[i, p] = x[i, p] * y[i, p]


@compiled(plain=plain.multiply)
def multiply(x: Any, y: Any) -> None:
    """y *= x"""
    for i in range(len(x)):
        for p in range(x.shape[1]):
            y[i, p] *= x[i, p]


@compiled(plain=plain.normalize)
def normalize(y: Any, mean: Any, deviation: Any) -> None:
    """y = (y - mean) / deviation"""
    for i in range(len(y)):
        for p in range(y.shape[1]):
            y[i, p] = (y[i, p] - mean[i]) / deviation[i]


@compiled(plain=plain.scale)
def scale(y: Any, factor: Any) -> None:
    """y *= factor as BLAS does it: by 0 everything becomes +0, NaN and infinity too."""
    for i in range(len(y)):
        if factor[i] == 0:
            y[i, :] = 0
        else:
            for p in range(y.shape[1]):
                y[i, p] *= factor[i]


@compiled(plain=plain.shift)
def shift(y: Any, value: Any) -> None:
    """y += value"""
    for i in range(len(y)):
        for p in range(y.shape[1]):
            y[i, p] += value[i]


# --- formulas for some channels of arrays (N, C, places), from ``first`` on: as many as there are values (channels,)


@compiled(plain=plain.squared_distance)
def squared_distance(x: Any, first: int, mean: Any, out: Any) -> None:
    """out (N, channels, places) = (x - mean)²"""
    for n in range(len(x)):
        for c in range(len(mean)):
            for p in range(x.shape[2]):
                distance = x[n, first + c, p] - mean[c]
                out[n, c, p] = distance * distance


@compiled(plain=plain.channel_product)
def channel_product(x: Any, y: Any, first: int, out: Any) -> None:
    """out (N, channels, places) = x * y"""
    for n in range(len(x)):
        for c in range(out.shape[1]):
            for p in range(x.shape[2]):
                out[n, c, p] = x[n, first + c, p] * y[n, first + c, p]


@compiled(plain=plain.normalize_and_keep)
def normalize_and_keep(y: Any, kept: Any, first: int, mean: Any, deviation: Any) -> None:
    """kept = y = (y - mean) / deviation"""
    for n in range(len(y)):
        for c in range(len(mean)):
            for p in range(y.shape[2]):
                value = (y[n, first + c, p] - mean[c]) / deviation[c]
                y[n, first + c, p] = value
                kept[n, first + c, p] = value


@compiled(plain=plain.normalize_diff)
def normalize_diff(dx: Any, y: Any, first: int, products: Any, total: Any, deviation: Any, factor: Any) -> None:
    """dx = ((y * products + total) * factor + dx) / deviation"""
    for n in range(len(y)):
        for c in range(len(total)):
            for p in range(y.shape[2]):
                sums = y[n, first + c, p] * products[c] + total[c]
                dx[n, first + c, p] = (sums * factor + dx[n, first + c, p]) / deviation[c]
