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

SAFE_BORDER = 16  # BLAS takes rows in fours: borders between them would change the rounding of some


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


def each_plane(formula: Callable[..., None], source: Any, target: Any, others: Any, values: Any, *numbers: Any) -> None:
    """``target`` = what ``formula(target, *others, *values, *numbers)`` makes of ``source`` in it, plane by plane."""
    arrays, count = [_flat(array) for array in (source, target, *others)], source.shape[0]
    columns = [np.tile(value, count) for value in values]

    def some(i: int, j: int) -> None:
        given, to, *rest = (array[i:j] for array in arrays)
        formula(copied(given, to), *rest, *(column[i:j] for column in columns), *numbers)

    _for_rows(arrays[0], some)


# --- formulas: planes (rows, places), then values (rows,)


@compiled(plain=plain.squared_distance)
def squared_distance(x: Any, mean: Any, out: Any) -> None:
    """out = (x - mean)²"""
    for i in range(len(x)):
        for p in range(x.shape[1]):
            distance = x[i, p] - mean[i]
            out[i, p] = distance * distance


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


@compiled(plain=plain.normalize_and_keep)
def normalize_and_keep(y: Any, kept: Any, mean: Any, deviation: Any) -> None:
    """kept = y = (y - mean) / deviation"""
    for i in range(len(y)):
        for p in range(y.shape[1]):
            value = (y[i, p] - mean[i]) / deviation[i]
            y[i, p] = value
            kept[i, p] = value


@compiled(plain=plain.normalize_diff)
def normalize_diff(dx: Any, y: Any, products: Any, total: Any, deviation: Any, factor: Any) -> None:
    """dx = ((y * products + total) * factor + dx) / deviation"""
    for i in range(len(y)):
        for p in range(y.shape[1]):
            dx[i, p] = ((y[i, p] * products[i] + total[i]) * factor + dx[i, p]) / deviation[i]


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
