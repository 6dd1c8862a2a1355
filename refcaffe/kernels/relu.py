"""ReLU in one pass over memory. Both of its terms are always added up: -infinity gives NaN at slope 0."""

from __future__ import annotations

from typing import Any

from refcaffe.kernels.compiled import compiled


@compiled
def _forward(x: Any, slope: float, zero: float, y: Any) -> None:
    for i in range(x.size):
        high = zero if x[i] < 0 else x[i]
        low = zero if x[i] > 0 else x[i]
        y[i] = high + slope * low


@compiled
def _backward(x: Any, dy: Any, slope: float, zero: float, one: float, dx: Any) -> None:
    for i in range(x.size):
        below = slope if x[i] <= 0 else zero
        above = one if x[i] > 0 else zero
        dx[i] = dy[i] * (below + above)


def relu_forward(x: Any, slope: Any, y: Any) -> None:
    """y = max(x, 0) + slope * min(x, 0): flat arrays of one type, of which ``slope`` is too."""
    _forward(x, slope, x.dtype.type(0), y)


def relu_backward(x: Any, dy: Any, slope: Any, dx: Any) -> None:
    """dx = dy where x > 0, slope * dy where it isn't, 0 * dy for NaN."""
    _backward(x, dy, slope, x.dtype.type(0), x.dtype.type(1), dx)
