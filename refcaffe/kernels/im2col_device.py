"""im2col and col2im on a device: there each pixel gathers what sees it, the last place of the kernel first."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from refcaffe.device import runtime
from refcaffe.kernels import plain_im2col as plain
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import CudaKernels, on_cuda
from refcaffe.kernels.im2col import Columns
from refcaffe.side import Side

# ``rows`` as in Columns; ``places`` is its inverse: the grid's row that sees an image's row at a place of the kernel.
CUDA = CudaKernels("""
KERNEL im2col(long long n, const T* image, const int* rows, int height, int width, int kernel_rows, int kernel_width,
              int grid_rows, int grid_width, int stride, int pad, int dilation, T* columns) {
  LOOP(at, n) {
    long long rest = at;
    const int p = rest % grid_width;  rest /= grid_width;
    const int r = rest % grid_rows;  rest /= grid_rows;
    const int j = rest % kernel_width;  rest /= kernel_width;
    const int i = rest % kernel_rows;  rest /= kernel_rows;
    const int row = rows[i * grid_rows + r], x = p * stride - pad + j * dilation;
    columns[at] = row >= 0 && x >= 0 && x < width ? image[(rest * height + row) * width + x] : T(0);
  }
}

KERNEL gather(long long n, const T* columns, const int* places, int height, int width, int kernel_rows,
              int kernel_width, int grid_rows, int grid_width, int stride, int pad, int dilation, T* image) {
  LOOP(at, n) {
    const int x = at % width, row = at / width % height;
    const long long channel = at / width / height;
    T sum = 0;
    for (int i = kernel_rows - 1; i >= 0; --i) {
      const int r = places[i * height + row];
      if (r < 0) continue;
      for (int j = kernel_width - 1; j >= 0; --j) {
        const int start = x + pad - j * dilation, p = start / stride;
        if (start < 0 || start % stride != 0 || p >= grid_width) continue;
        sum += columns[(((channel * kernel_rows + i) * kernel_width + j) * grid_rows + r) * grid_width + p];
      }
    }
    image[at] = sum;
  }
}
""")


@compiled(plain=plain.device_im2col)
def _im2col(image: Any, rows: Any, stride: int, pad: int, dilation: int, columns: Any) -> None:
    width = image.shape[2]
    channels, kernel_rows, kernel_width, grid_rows, grid_width = columns.shape
    for c in range(channels):
        for i in range(kernel_rows):
            for j in range(kernel_width):
                for r in range(grid_rows):
                    for p in range(grid_width):
                        x = p * stride - pad + j * dilation
                        seen = rows[i, r] >= 0 and 0 <= x < width
                        columns[c, i, j, r, p] = image[c, rows[i, r], x] if seen else 0


@compiled(plain=plain.device_gather)
def _gather(columns: Any, rows: Any, stride: int, pad: int, dilation: int, image: Any) -> None:
    width = image.shape[2]
    channels, kernel_rows, kernel_width, grid_rows, grid_width = columns.shape
    for c in range(channels):
        image[c] = 0
        for i in range(kernel_rows - 1, -1, -1):
            for j in range(kernel_width - 1, -1, -1):
                for r in range(grid_rows):
                    for p in range(grid_width):
                        x = p * stride - pad + j * dilation
                        if rows[i, r] >= 0 and 0 <= x < width:
                            image[c, rows[i, r], x] += columns[c, i, j, r, p]


def im2col(side: Side, where: Columns, image: Any, columns: Any) -> None:
    """Write the columns of an image."""
    image, columns = image.reshape(where.image_shape), columns.reshape(where.shape)
    if on_cuda(image):
        rows = _on_device(side.xp, where, "rows", where.rows)
        CUDA.launch("im2col", columns.size, image.dtype, image, rows, *_sizes(where), columns)
    else:
        _im2col(image, where.rows, *where.step, columns)


def col2im(side: Side, where: Columns, columns: Any, image: Any) -> None:
    """Write the image: each pixel is the sum of the elements of columns that see it."""
    image, columns = image.reshape(where.image_shape), columns.reshape(where.shape)
    if on_cuda(image):
        places = _on_device(side.xp, where, "places", _places(where))
        CUDA.launch("gather", image.size, image.dtype, columns, places, *_sizes(where), image)
    else:
        _gather(columns, where.rows, *where.step, image)


def _sizes(where: Columns) -> tuple[int, ...]:
    return (*where.image_shape[1:], *where.shape[1:], *where.step)


def _places(where: Columns) -> Any:
    places = np.full((len(where.rows), where.image_shape[1]), -1)
    kernel_row, grid_row = np.nonzero(where.rows >= 0)
    places[kernel_row, where.rows[kernel_row, grid_row]] = grid_row
    return places


_tables: WeakKeyDictionary[Columns, dict[tuple[str, int], Any]] = WeakKeyDictionary()


def _on_device(xp: Any, where: Columns, name: str, table: Any) -> Any:
    """A table, brought to the current device when it is first needed there."""
    tables = _tables.setdefault(where, {})
    key = (name, runtime().get_device())
    if key not in tables:
        tables[key] = xp.asarray(table.astype(np.int32))
    return tables[key]
