"""Local response normalization on a device: one thread per pixel, which goes through the channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels import plain_lrn as plain
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import CudaKernels

CUDA = CudaKernels("""
KERNEL lrn_scale(long long n, const T* x, int channels, int pixels, int size, T alpha, T k, T* scale) {
  LOOP(at, n) {
    const long long first = at / pixels * channels * pixels + at % pixels;
    const int half = (size - 1) / 2;
    T sum = 0;
    for (int head = 0; head < channels + half; ++head) {
      const long long in = first + (long long)head * pixels;
      if (head < channels) sum += x[in] * x[in];
      if (head >= size) sum -= x[in - (long long)size * pixels] * x[in - (long long)size * pixels];
      if (head >= half) scale[in - (long long)half * pixels] = k + sum * alpha;
    }
  }
}

KERNEL lrn_backward(long long n, const T* x, const T* y, const T* dy, const T* scale, const T* power, int channels,
                    int pixels, int size, T factor, T* dx) {
  LOOP(at, n) {
    const long long first = at / pixels * channels * pixels + at % pixels;
    const int half = size - 1 - (size - (size + 1) / 2);
    T sum = 0;
    for (int head = 0; head < channels + half; ++head) {
      const long long in = first + (long long)head * pixels, out = in - (long long)size * pixels;
      const long long here = in - (long long)half * pixels;
      if (head < channels) sum += dy[in] * y[in] / scale[in];
      if (head >= size) sum -= dy[out] * y[out] / scale[out];
      if (head >= half) dx[here] = dy[here] * power[here] - factor * x[here] * sum;
    }
  }
}
""")


@compiled(plain=plain.device_scale)
def _scale(x: Any, size: int, k: float, alpha: float, total: Any, scale: Any) -> None:
    images, channels, pixels = x.shape
    half = (size - 1) // 2
    for n in range(images):
        total[:] = 0
        for head in range(channels + half):
            if head < channels:
                for p in range(pixels):
                    total[p] += x[n, head, p] * x[n, head, p]
            if head >= size:
                for p in range(pixels):
                    total[p] -= x[n, head - size, p] * x[n, head - size, p]
            if head >= half:
                for p in range(pixels):
                    scale[n, head - half, p] = k + total[p] * alpha


@compiled(plain=plain.device_backward)
def _backward(x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: float, total: Any, dx: Any) -> None:
    images, channels, pixels = x.shape
    half = size - 1 - (size - (size + 1) // 2)
    for n in range(images):
        total[:] = 0
        for head in range(channels + half):
            if head < channels:
                for p in range(pixels):
                    total[p] += dy[n, head, p] * y[n, head, p] / scale[n, head, p]
            if head >= size:
                tail = head - size
                for p in range(pixels):
                    total[p] -= dy[n, tail, p] * y[n, tail, p] / scale[n, tail, p]
            if head >= half:
                c = head - half
                for p in range(pixels):
                    dx[n, c, p] = dy[n, c, p] * power[n, c, p] - factor * x[n, c, p] * total[p]


def scale(x: Any, size: int, k: Any, alpha: Any, out: Any) -> None:
    """Arrays of the host, (N, C, pixels)."""
    _scale(x, size, k, alpha, np.empty(x.shape[2], x.dtype), out)


def backward(x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: Any, dx: Any) -> None:
    """Arrays of the host, (N, C, pixels)."""
    _backward(x, y, dy, scale, power, size, factor, np.empty(x.shape[2], x.dtype), dx)


def cuda_scale(x: Any, size: int, k: Any, alpha: Any, out: Any) -> None:
    """Arrays of a CUDA device, (N, C, pixels)."""
    _, channels, pixels = x.shape
    CUDA.launch("lrn_scale", x.size // channels, x.dtype, x, channels, pixels, size, alpha, k, out)


def cuda_backward(x: Any, y: Any, dy: Any, scale: Any, power: Any, size: int, factor: Any, dx: Any) -> None:
    """Arrays of a CUDA device, (N, C, pixels)."""
    _, channels, pixels = x.shape
    sizes = (channels, pixels, size)
    CUDA.launch("lrn_backward", x.size // channels, x.dtype, x, y, dy, scale, power, *sizes, factor, dx)
