"""Vector operations as BLAS does them, with BLAS's own special cases.

Original Caffe leaves these to a library. The recordings' (OpenBLAS on a processor with fused multiply-add) rounds the
product of ``axpy`` only behind the last whole block of 32 elements; so does this, where NumPy's arrays are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.parallel import GRAIN, for_ranges  # GRAIN is made of whole FUSED_BLOCKs

FUSED_BLOCK = 32


def _plain_axpy_float32(alpha: Any, x: Any, y: Any) -> None:
    fused = x.size // FUSED_BLOCK * FUSED_BLOCK
    y[:fused] = np.float64(alpha) * x[:fused].astype(np.float64) + y[:fused]
    y[fused:] += alpha * x[fused:]


@compiled(plain=_plain_axpy_float32)
def _axpy_float32(alpha: Any, x: Any, y: Any) -> None:
    fused = x.size // 32 * 32
    # A product of two singles is exact in double: one rounding is left, as in a fused operation.
    wide = np.float64(alpha)
    for i in range(fused):
        y[i] = np.float32(wide * np.float64(x[i]) + np.float64(y[i]))
    for i in range(fused, x.size):
        y[i] += alpha * x[i]


def axpy(alpha: Any, x: Any, y: Any) -> None:
    """y += alpha * x, for arrays of one shape; ``alpha`` is of their type. Nothing happens if it is 0."""
    if alpha == 0:
        return
    if isinstance(y, np.ndarray) and y.dtype == np.float32:
        if y.size < FUSED_BLOCK:
            y += alpha * x
        else:
            given, to = x.reshape(-1), y.reshape(-1)
            for_ranges(y.size, GRAIN, lambda i, j: _axpy_float32(alpha, given[i:j], to[i:j]))
    else:
        y += alpha * x


def scal(alpha: Any, y: Any) -> None:
    """y *= alpha; 0 clears whatever was there, not-a-numbers too."""
    if alpha == 0:
        y.fill(0)
    elif alpha != 1:
        y *= alpha


def axpby(alpha: Any, x: Any, beta: Any, y: Any) -> None:
    """y = alpha * x + beta * y."""
    if not isinstance(y, np.ndarray) or y.size <= GRAIN:
        scal(beta, y)
        axpy(alpha, x, y)
        return

    def some(i: int, j: int) -> None:  # both while the elements are in the cache
        scal(beta, to[i:j])
        axpy(alpha, given[i:j], to[i:j])

    given, to = x.reshape(-1), y.reshape(-1)
    for_ranges(y.size, GRAIN, some)


def clear(y: Any) -> None:
    """y = 0."""
    if isinstance(y, np.ndarray) and y.size > GRAIN:
        to = y.reshape(-1)
        for_ranges(y.size, GRAIN, lambda i, j: to[i:j].fill(0))
    else:
        y.fill(0)


def subtract(x: Any, y: Any) -> None:
    """y -= x."""
    if isinstance(y, np.ndarray) and y.size > GRAIN:
        given, to = x.reshape(-1), y.reshape(-1)
        for_ranges(y.size, GRAIN, lambda i, j: np.subtract(to[i:j], given[i:j], out=to[i:j]))
    else:
        y -= x
