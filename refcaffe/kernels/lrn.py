"""Local response normalization across channels: sums over neighbouring channels, kept as running sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refcaffe.kernels import lrn_device as device
from refcaffe.kernels import plain_lrn as plain
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import on_cuda
from refcaffe.kernels.parallel import GRAIN, for_each, scratch

# The kernels work on the pixels ``first`` ... ``end`` - 1 of image ``n``: unsigned, as in ``im2col``.


@compiled(plain=plain.scale)
def _scale(x: Any, n: int, first: int, end: int, half: int, k: float, alpha: float, scale: Any) -> None:
    channels, start, stop = x.shape[1], np.uintp(first), np.uintp(end)
    for p in range(start, stop):
        scale[n, 0, p] = k
    for c in range(min(half + 1, channels)):
        for p in range(start, stop):
            scale[n, 0, p] += alpha * (x[n, c, p] * x[n, c, p])
    for c in range(1, channels):
        for p in range(start, stop):
            scale[n, c, p] = scale[n, c - 1, p]
        head = c + half
        if head < channels:
            for p in range(start, stop):
                scale[n, c, p] += alpha * (x[n, head, p] * x[n, head, p])
        tail = c - half - 1
        if tail >= 0:
            for p in range(start, stop):
                scale[n, c, p] -= alpha * (x[n, tail, p] * x[n, tail, p])


@compiled(plain=plain.subtract_neighbours)
def _subtract_neighbours(
    x: Any, y: Any, dy: Any, scale: Any, n: int, first: int, end: int, half: int, factor: float, ratio: Any, dx: Any
) -> None:
    channels, start, count = x.shape[1], np.uintp(first), np.uintp(end - first)
    total = ratio[channels]
    for c in range(channels):
        for p in range(count):
            ratio[c, p] = dy[n, c, start + p] * y[n, c, start + p] / scale[n, c, start + p]
    total[:] = 0
    for c in range(min(half, channels)):
        for p in range(count):
            total[p] += ratio[c, p]
    for c in range(channels):
        head = c + half
        if head < channels:
            for p in range(count):
                total[p] += ratio[head, p]
        for p in range(count):
            dx[n, c, start + p] -= factor * (x[n, c, start + p] * total[p])
        tail = c - half
        if tail >= 0:
            for p in range(count):
                total[p] -= ratio[tail, p]


def _pixels(array: Any) -> Any:
    """(N, C, H, W) as (N, C, H * W)."""
    n, c, h, w = array.shape
    return array.reshape(n, c, h * w)


def _for_pieces(x: Any, piece: Callable[[int, int, int], None]) -> None:
    """``piece(n, first, end)`` over ranges of pixels of all images (N, C, pixels); all channels stay in the cache."""
    images, channels, pixels = x.shape
    step = max(64, GRAIN // max(1, channels))
    parts = -(-pixels // step)

    def numbered(i: int) -> None:
        n, part = divmod(i, parts)
        piece(n, part * step, min(part * step + step, pixels))

    for_each(images * parts, numbered)


def lrn_device_scale(x: Any, size: int, k: Any, alpha: Any, scale: Any) -> None:
    """``scale`` = k + alpha * (the sum of x² over ``size`` channels around), added up first, then multiplied.

    Arrays: (N, C, H, W); ``k`` and ``alpha``, already divided by ``size``: of the arrays' type.
    """
    make = device.cuda_scale if on_cuda(x) else device.scale
    make(_pixels(x), size, k, alpha, _pixels(scale))


def lrn_forward(x: Any, size: int, k: Any, alpha: Any, power: Any, scale: Any, y: Any) -> None:
    """On the host: ``scale`` = k + alpha * (the sum of x² over ``size`` channels around), y = scale^power * x.

    Arrays: (N, C, H, W); ``k``, ``alpha``, already divided by ``size``, and ``power``: of the arrays' type.
    """
    x, y, scale = _pixels(x), _pixels(y), _pixels(scale)

    def piece(n: int, first: int, end: int) -> None:
        some = (n, slice(None), slice(first, end))
        if alpha == 0:  # BLAS adds nothing then, not 0 * infinity
            scale[some] = k
        else:
            _scale(x, n, first, end, size // 2, k, alpha, scale)
        powers = np.power(scale[some], power, out=scratch("powers", scale[some].shape, x.dtype))
        np.multiply(powers, x[some], out=y[some])

    _for_pieces(x, piece)


def lrn_backward(x: Any, y: Any, dy: Any, scale: Any, size: int, power: Any, factor: Any, dx: Any) -> None:
    """On the host: ``dx`` = scale^power * dy - factor * x * (the sum of dy * y / scale over ``size`` channels around).

    Arrays: (N, C, H, W); ``factor`` and ``power``: of the arrays' type.
    """
    channels = x.shape[1]
    x, y, dy, scale, dx = map(_pixels, (x, y, dy, scale, dx))

    def piece(n: int, first: int, end: int) -> None:
        some = (n, slice(None), slice(first, end))
        powers = np.power(scale[some], power, out=scratch("powers", scale[some].shape, x.dtype))
        np.multiply(powers, dy[some], out=dx[some])
        if factor != 0:
            ratio = scratch("ratio", (channels + 1, end - first), x.dtype)  # the last row: their running sum
            _subtract_neighbours(x, y, dy, scale, n, first, end, size // 2, factor, ratio, dx)

    _for_pieces(x, piece)


def lrn_device_backward(x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: Any, dx: Any) -> None:
    """``dx`` = dy * power - factor * x * (the sum of dy * y / scale over ``size`` channels around): a device's way.

    Arrays: (N, C, H, W), ``power`` may be ``dx``; ``factor``: of the arrays' type.
    """
    compute = device.cuda_backward if on_cuda(x) else device.backward
    x, y, dy, scale, power, dx = map(_pixels, (x, y, dy, scale, power, dx))
    compute(x, y, dy, scale, power, size, factor, dx)
