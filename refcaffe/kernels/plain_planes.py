"""The formulas of ``planes`` without a compiler; each as the kernel of its name."""

from __future__ import annotations

from typing import Any

import numpy as np


def squared_distance(x: Any, mean: Any, out: Any) -> None:
    np.subtract(x, mean[:, None], out=out)
    np.multiply(out, out, out=out)


def product(x: Any, y: Any, out: Any) -> None:
    np.multiply(x, y, out=out)


def multiply(x: Any, y: Any) -> None:
    y *= x


def normalize(y: Any, mean: Any, deviation: Any) -> None:
    y -= mean[:, None]
    y /= deviation[:, None]


def normalize_and_keep(y: Any, kept: Any, mean: Any, deviation: Any) -> None:
    normalize(y, mean, deviation)
    np.copyto(kept, y)


def normalize_diff(dx: Any, y: Any, products: Any, total: Any, deviation: Any, factor: Any) -> None:
    dx += (y * products[:, None] + total[:, None]) * factor
    dx /= deviation[:, None]


def scale(y: Any, factor: Any) -> None:
    y *= factor[:, None]
    y[factor == 0] = 0


def shift(y: Any, value: Any) -> None:
    y += value[:, None]
