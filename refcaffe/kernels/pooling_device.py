"""Pooling on a device: one thread per place of the top, or, in backward, per pixel, which gathers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refcaffe.kernels import plain_pooling as plain
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import CudaKernels

if TYPE_CHECKING:
    from refcaffe.kernels.pooling import Windows

# All of them get the geometry first; FIRST and LAST are the windows that may see a pixel.
CUDA = CudaKernels("""
#define GEOMETRY int height, int width, int rows, int columns, int kernel_h, int kernel_w, int stride_h, \\
  int stride_w, int pad_h, int pad_w
#define FIRST(x, kernel, stride) ((x) < (kernel) ? 0 : ((x) - (kernel)) / (stride) + 1)
#define LAST(x, stride, count) min((x) / (stride) + 1, count)
#define WINDOW(at) \\
  const int j = at % columns, i = at / columns % rows; \\
  const long long plane = at / columns / rows; \\
  const int top = i * stride_h - pad_h, left = j * stride_w - pad_w; \\
  const int h0 = max(top, 0), h1 = min(top + kernel_h, height); \\
  const int w0 = max(left, 0), w1 = min(left + kernel_w, width); \\
  const T* seen = x + plane * height * width;
#define PIXEL(at) \\
  const int w = at % width, h = at / width % height; \\
  const long long plane = at / width / height; \\
  const int i0 = FIRST(h + pad_h, kernel_h, stride_h), i1 = LAST(h + pad_h, stride_h, rows); \\
  const int j0 = FIRST(w + pad_w, kernel_w, stride_w), j1 = LAST(w + pad_w, stride_w, columns); \\
  const long long first = plane * rows * columns;

template <typename Place>
DEVICE void largest(long long n, GEOMETRY, const T* x, T* y, Place* mask) {
  LOOP(at, n) {
    WINDOW(at)
    T best = -3.402823466e+38f;
    int place = -1;
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w)
        if (seen[h * width + w] > best) {
          place = h * width + w;
          best = seen[place];
        }
    y[at] = best;
    mask[at] = place;
  }
}

template <typename Place>
DEVICE void back_to_largest(long long n, GEOMETRY, const T* dy, const Place* mask, T* dx) {
  LOOP(at, n) {
    PIXEL(at)
    T sum = 0;
    for (int i = i0; i < i1; ++i)
      for (int j = j0; j < j1; ++j)
        if (mask[first + i * columns + j] == h * width + w) sum += dy[first + i * columns + j];
    dx[at] = sum;
  }
}

#define PASS height, width, rows, columns, kernel_h, kernel_w, stride_h, stride_w, pad_h, pad_w
KERNEL max_forward(long long n, GEOMETRY, const T* x, T* y, int* mask) { largest(n, PASS, x, y, mask); }
KERNEL max_forward_top(long long n, GEOMETRY, const T* x, T* y, T* mask) { largest(n, PASS, x, y, mask); }
KERNEL max_backward(long long n, GEOMETRY, const T* dy, const int* mask, T* dx) {
  back_to_largest(n, PASS, dy, mask, dx);
}
KERNEL max_backward_top(long long n, GEOMETRY, const T* dy, const T* mask, T* dx) {
  back_to_largest(n, PASS, dy, mask, dx);
}

KERNEL average_forward(long long n, GEOMETRY, const T* x, T* y) {
  LOOP(at, n) {
    WINDOW(at)
    const int size = (min(top + kernel_h, height + pad_h) - top) * (min(left + kernel_w, width + pad_w) - left);
    T sum = 0;
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w) sum += seen[h * width + w];
    y[at] = sum / size;
  }
}

KERNEL average_backward(long long n, GEOMETRY, const T* dy, T* dx) {
  LOOP(at, n) {
    PIXEL(at)
    T sum = 0;
    for (int i = i0; i < i1; ++i)
      for (int j = j0; j < j1; ++j) {
        const int top = i * stride_h - pad_h, left = j * stride_w - pad_w;
        const int size = (min(top + kernel_h, height + pad_h) - top) * (min(left + kernel_w, width + pad_w) - left);
        sum += dy[first + i * columns + j] / size;
      }
    dx[at] = sum;
  }
}

KERNEL stochastic_train(long long n, GEOMETRY, const T* x, T* chosen, T* y) {
  LOOP(at, n) {
    WINDOW(at)
    T sum = 0;
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w) sum += seen[h * width + w];
    const float enough = chosen[at] * sum;
    sum = 0;
    bool found = false;
    for (int h = h0; h < h1 && !found; ++h)
      for (int w = w0; w < w1 && !found; ++w) {
        sum += seen[h * width + w];
        if (sum >= enough) {
          chosen[at] = (plane * height + h) * width + w;
          y[at] = seen[h * width + w];
          found = true;
        }
      }
  }
}

KERNEL stochastic_test(long long n, GEOMETRY, const T* x, T* y) {
  LOOP(at, n) {
    WINDOW(at)
    T sum = 0, squares = 0;
    for (int h = h0; h < h1; ++h)
      for (int w = w0; w < w1; ++w) {
        sum += seen[h * width + w];
        squares += seen[h * width + w] * seen[h * width + w];
      }
    y[at] = sum > 0 ? squares / sum : T(0);
  }
}

KERNEL stochastic_backward(long long n, GEOMETRY, const T* dy, const T* chosen, T* dx) {
  LOOP(at, n) {
    PIXEL(at)
    T sum = 0;
    for (int i = i0; i < i1; ++i)
      for (int j = j0; j < j1; ++j)
        sum += dy[first + i * columns + j] * (static_cast<int>(chosen[first + i * columns + j]) == at);
    dx[at] = sum;
  }
}
""")


@compiled(plain=plain.stochastic_train)
def _stochastic_train(x: Any, rows: Any, columns: Any, zero: float, chosen: Any, y: Any) -> None:
    _, height, width = x.shape
    for n in range(len(x)):
        for i in range(len(rows)):
            for j in range(len(columns)):
                total = zero
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        total += x[n, h, w]
                enough = np.float32(chosen[n, i, j] * total)
                total = zero
                found = False
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        total += x[n, h, w]
                        if not found and total >= enough:
                            chosen[n, i, j] = (n * height + h) * width + w
                            y[n, i, j] = x[n, h, w]
                            found = True


@compiled(plain=plain.stochastic_test)
def _stochastic_test(x: Any, rows: Any, columns: Any, zero: float, y: Any) -> None:
    for n in range(len(x)):
        for i in range(len(rows)):
            for j in range(len(columns)):
                total = zero
                squares = zero
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        total += x[n, h, w]
                        squares += x[n, h, w] * x[n, h, w]
                y[n, i, j] = squares / total if total > 0 else zero


@compiled(plain=plain.stochastic_backward)
def _stochastic_backward(dy: Any, chosen: Any, rows: Any, columns: Any, zero: float, one: float, dx: Any) -> None:
    _, height, width = dx.shape
    for n in range(len(dx)):
        dx[n] = 0
        for i in range(len(rows)):
            for j in range(len(columns)):
                at = np.int64(chosen[n, i, j])
                for h in range(rows[i, 0], rows[i, 1]):
                    for w in range(columns[j, 0], columns[j, 1]):
                        # A product with 0, not nothing: not-a-numbers and infinities spread.
                        dx[n, h, w] += dy[n, i, j] * (one if (n * height + h) * width + w == at else zero)


def launch(name: str, windows: Windows, out: Any, *arrays: Any) -> None:
    """Run a CUDA kernel that writes ``out``, the last of its arrays."""
    CUDA.launch(name, out.size, out.dtype, *windows.geometry, *arrays)


def stochastic_train(windows: Windows, x: Any, chosen: Any, y: Any) -> None:
    """Arrays of the host, in planes. ``chosen``: see ``kernels.pooling``."""
    _stochastic_train(x, windows.rows, windows.columns, x.dtype.type(0), chosen, y)


def stochastic_test(windows: Windows, x: Any, y: Any) -> None:
    """Arrays of the host, in planes."""
    _stochastic_test(x, windows.rows, windows.columns, x.dtype.type(0), y)


def stochastic_backward(windows: Windows, dy: Any, chosen: Any, dx: Any) -> None:
    """Arrays of the host, in planes."""
    _stochastic_backward(dy, chosen, windows.rows, windows.columns, dx.dtype.type(0), dx.dtype.type(1), dx)
