"""im2col and col2im on a device: there each pixel gathers what sees it, the last place of the kernel first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.cuda import CudaKernels

if TYPE_CHECKING:
    from refcaffe.kernels.im2col import Columns

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


@compiled
def _gather(columns: Any, rows: Any, stride: int, pad: int, dilation: int, image: Any) -> None:
    width = image.shape[2]
    channels, kernel_rows, kernel_width, grid_rows, grid_width = columns.shape
    for c in range(channels):
        image[c] = 0
        for i in range(kernel_rows - 1, -1, -1):
            for j in range(kernel_width - 1, -1, -1):
                for r in range(grid_rows):
                    row = rows[i, r]
                    if row < 0:
                        continue
                    for p in range(grid_width):
                        x = p * stride - pad + j * dilation
                        if 0 <= x < width:
                            image[c, row, x] += columns[c, i, j, r, p]


def gather(where: Columns, columns: Any, image: Any) -> None:
    """Write the image from columns; arrays of the host, shaped as the kernels want them."""
    _gather(columns, where.rows, *where.step, image)


def cuda_im2col(xp: Any, where: Columns, image: Any, columns: Any) -> None:
    """Write the columns of an image; arrays of a CUDA device, shaped as the kernels want them."""
    rows = _on_device(xp, where, "rows", where.rows)
    CUDA.launch("im2col", columns.size, image.dtype, image, rows, *_sizes(where), columns)


def cuda_gather(xp: Any, where: Columns, columns: Any, image: Any) -> None:
    """Write the image from columns; arrays of a CUDA device, shaped as the kernels want them."""
    places = _on_device(xp, where, "places", _places(where))
    CUDA.launch("gather", image.size, image.dtype, columns, places, *_sizes(where), image)


def _sizes(where: Columns) -> tuple[int, ...]:
    return (*where.image_shape[1:], *where.shape[1:], *where.step)


def _places(where: Columns) -> Any:
    places = np.full((len(where.rows), where.image_shape[1]), -1)
    kernel_row, grid_row = np.nonzero(where.rows >= 0)
    places[kernel_row, where.rows[kernel_row, grid_row]] = grid_row
    return places


def _on_device(xp: Any, where: Columns, name: str, table: Any) -> Any:
    """A table, brought to the current device when it is first needed there."""
    key = (name, int(xp.cuda.Device()))
    if key not in where.device_tables:
        where.device_tables[key] = xp.asarray(table.astype(np.int32))
    return where.device_tables[key]
