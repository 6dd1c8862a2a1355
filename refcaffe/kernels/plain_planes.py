"""The formulas of ``planes`` without a compiler; each as the kernel of its name."""

from __future__ import annotations

from typing import Any

import numpy as np


def product(x: Any, y: Any, out: Any) -> None:
    np.multiply(x, y, out=out)


def multiply(x: Any, y: Any) -> None:
    y *= x


def normalize(y: Any, mean: Any, deviation: Any) -> None:
    y -= mean[:, None]
    y /= deviation[:, None]


def scale(y: Any, factor: Any) -> None:
    y *= factor[:, None]
    y[factor == 0] = 0


def shift(y: Any, value: Any) -> None:
    y += value[:, None]


def _channels(array: Any, first: int, count: int) -> Any:
    return array[:, first : first + count]


def squared_distance(x: Any, first: int, mean: Any, out: Any) -> None:
    np.subtract(_channels(x, first, len(mean)), mean[:, None], out=out)
    np.multiply(out, out, out=out)


def channel_product(x: Any, y: Any, first: int, out: Any) -> None:
    np.multiply(_channels(x, first, out.shape[1]), _channels(y, first, out.shape[1]), out=out)


def normalize_and_keep(y: Any, kept: Any, first: int, mean: Any, deviation: Any) -> None:
    y, kept = (_channels(array, first, len(mean)) for array in (y, kept))
    normalize(y, mean, deviation)
    np.copyto(kept, y)


def normalize_diff(dx: Any, y: Any, first: int, products: Any, total: Any, deviation: Any, factor: Any) -> None:
    dx, y = (_channels(array, first, len(total)) for array in (dx, y))
    dx += (y * products[:, None] + total[:, None]) * factor
    dx /= deviation[:, None]
