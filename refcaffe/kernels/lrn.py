"""Local response normalization across channels: sums over neighbouring channels, kept as running sums."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels import lrn_device as device
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import on_cuda
from refcaffe.side import Side


@compiled
def _scale(x: Any, half: int, k: float, alpha: float, scale: Any) -> None:
    images, channels, pixels = x.shape
    for n in range(images):
        for p in range(pixels):
            scale[n, 0, p] = k
        for c in range(min(half + 1, channels)):
            for p in range(pixels):
                scale[n, 0, p] += alpha * (x[n, c, p] * x[n, c, p])
        for c in range(1, channels):
            for p in range(pixels):
                scale[n, c, p] = scale[n, c - 1, p]
            head = c + half
            if head < channels:
                for p in range(pixels):
                    scale[n, c, p] += alpha * (x[n, head, p] * x[n, head, p])
            tail = c - half - 1
            if tail >= 0:
                for p in range(pixels):
                    scale[n, c, p] -= alpha * (x[n, tail, p] * x[n, tail, p])


@compiled
def _subtract_neighbours(x: Any, y: Any, dy: Any, scale: Any, half: int, factor: float, ratio: Any, dx: Any) -> None:
    images, channels, pixels = x.shape
    total = ratio[channels]
    for n in range(images):
        for c in range(channels):
            for p in range(pixels):
                ratio[c, p] = dy[n, c, p] * y[n, c, p] / scale[n, c, p]
        total[:] = 0
        for c in range(min(half, channels)):
            for p in range(pixels):
                total[p] += ratio[c, p]
        for c in range(channels):
            head = c + half
            if head < channels:
                for p in range(pixels):
                    total[p] += ratio[head, p]
            for p in range(pixels):
                dx[n, c, p] -= factor * (x[n, c, p] * total[p])
            tail = c - half
            if tail >= 0:
                for p in range(pixels):
                    total[p] -= ratio[tail, p]


def _pixels(array: Any) -> Any:
    """(N, C, H, W) as (N, C, H * W)."""
    n, c, h, w = array.shape
    return array.reshape(n, c, h * w)


def lrn_scale(side: Side, x: Any, size: int, k: Any, alpha: Any, scale: Any) -> None:
    """``scale`` = k + alpha * (the sum of x² over ``size`` channels around); a device adds up first, then multiplies.

    Arrays: (N, C, H, W); ``k`` and ``alpha``, already divided by ``size``: of the arrays' type.
    """
    if side.gpu:
        make = device.cuda_scale if on_cuda(x) else device.scale
        make(_pixels(x), size, k, alpha, _pixels(scale))
        return
    if alpha == 0:  # BLAS adds nothing then, not 0 * infinity
        scale.fill(k)
        return
    _scale(_pixels(x), size // 2, k, alpha, _pixels(scale))


def lrn_device_backward(x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: Any, dx: Any) -> None:
    """``dx`` = dy * power - factor * x * (the sum of dy * y / scale over ``size`` channels around), as a device does it.

    Arrays: (N, C, H, W), ``power`` may be ``dx``; ``factor``: of the arrays' type.
    """
    compute = device.cuda_backward if on_cuda(x) else device.backward
    compute(*map(_pixels, (x, y, dy, scale, power)), size, factor, _pixels(dx))


def lrn_subtract_neighbours(side: Side, x: Any, y: Any, dy: Any, scale: Any, size: int, factor: Any, dx: Any) -> None:
    """``dx`` -= factor * x * (the sum of dy * y / scale over ``size`` channels around).

    Arrays: (N, C, H, W); ``factor``: of the arrays' type.
    """
    if factor == 0:
        return
    _, channels, height, width = x.shape
    work = np.empty((channels + 1, height * width), x.dtype)  # the ratios of an image, and their running sum
    x, y, dy, scale = _pixels(x), _pixels(y), _pixels(dy), _pixels(scale)
    _subtract_neighbours(x, y, dy, scale, size // 2, factor, work, _pixels(dx))
