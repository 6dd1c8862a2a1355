"""ReLU in one pass over memory. Both of its terms are always added up: -infinity gives NaN at slope 0."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels.compiled import compiled, copied


def _plain_forward(y: Any, slope: float, zero: float) -> None:
    high, low = np.where(y < 0, zero, y), np.where(y > 0, zero, y)
    np.add(high, slope * low, out=y)


def _plain_backward(dx: Any, x: Any, slope: float, zero: float, one: float) -> None:
    dx *= np.where(x <= 0, slope, zero) + np.where(x > 0, one, zero)


@compiled(plain=_plain_forward)
def _forward(y: Any, slope: float, zero: float) -> None:
    for i in range(y.size):
        high = zero if y[i] < 0 else y[i]
        low = zero if y[i] > 0 else y[i]
        y[i] = high + slope * low


@compiled(plain=_plain_backward)
def _backward(dx: Any, x: Any, slope: float, zero: float, one: float) -> None:
    for i in range(dx.size):
        below = slope if x[i] <= 0 else zero
        above = one if x[i] > 0 else zero
        dx[i] *= below + above


def relu_forward(x: Any, slope: Any, y: Any) -> None:
    """y = max(x, 0) + slope * min(x, 0): flat arrays of one type, of which ``slope`` is too."""
    _forward(copied(x, y), slope, x.dtype.type(0))


def relu_backward(x: Any, dy: Any, slope: Any, dx: Any) -> None:
    """dx = dy where x > 0, slope * dy where it isn't, 0 * dy for NaN."""
    _backward(copied(dy, dx), x, slope, x.dtype.type(0), x.dtype.type(1))
