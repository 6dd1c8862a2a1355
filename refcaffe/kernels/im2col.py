"""im2col and col2im over any number of axes: what a kernel sees at each position, as columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.kernels.compiled import compiled
from refcaffe.side import Side


class Columns:
    """Where the elements of columns lie in an image; made for one size of both.

    An image is (``channels``, *``image``); its columns are (``channels``, *``kernel``, *``grid``), where
    ``grid`` is the number of positions along each axis. All sequences are as long, and not empty.
    """

    def __init__(
        self,
        channels: int,
        image: Sequence[int],
        grid: Sequence[int],
        kernel: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        rows: NDArray[np.int64] = np.zeros((1, 1), np.int64)
        for size, n, k, s, p, d in zip(image[:-1], grid[:-1], kernel, stride, pad, dilation, strict=False):
            place = np.arange(k)[:, None] * d + np.arange(n) * s - p
            place = place[None, :, None, :]
            above = rows[:, None, :, None]
            inside = (above >= 0) & (place >= 0) & (place < size)
            rows = np.where(inside, above * size + place, -1).reshape(len(rows) * k, rows.shape[1] * n)
        # The image's row at each place of kernel and grid along all axes but the last; -1 in the padding.
        self.rows = np.ascontiguousarray(rows)
        self.step = (stride[-1], pad[-1], dilation[-1])
        self.image_shape = (channels, prod(image[:-1]), image[-1])
        self.shape = (channels, len(rows), kernel[-1], rows.shape[1], grid[-1])


column_map = lru_cache(maxsize=256)(Columns)  # layers ask in every pass, and many of a net are alike


@compiled
def _im2col(image: Any, rows: Any, stride: int, pad: int, dilation: int, columns: Any, first_row: int) -> None:
    width = image.shape[2]
    channels, kernel_rows, kernel_width, grid_rows, grid_width = columns.shape
    for c in range(channels):
        for i in range(kernel_rows):
            for j in range(kernel_width):
                start = j * dilation - pad
                first = min(max(-start + stride - 1, 0) // stride, grid_width)
                end = max(min((width - 1 - start) // stride + 1, grid_width), first)
                for r in range(grid_rows):
                    row = rows[i, first_row + r]
                    if row < 0:
                        for p in range(grid_width):
                            columns[c, i, j, r, p] = 0
                        continue
                    for p in range(first):
                        columns[c, i, j, r, p] = 0
                    if stride == 1:  # a loop of its own, so that it is compiled to whole vectors
                        for p in range(first, end):
                            columns[c, i, j, r, p] = image[c, row, start + p]
                    else:
                        for p in range(first, end):
                            columns[c, i, j, r, p] = image[c, row, start + p * stride]
                    for p in range(end, grid_width):
                        columns[c, i, j, r, p] = 0


@compiled
def _add_columns(columns: Any, rows: Any, stride: int, pad: int, dilation: int, image: Any, first_row: int) -> None:
    width = image.shape[2]
    channels, kernel_rows, kernel_width, grid_rows, grid_width = columns.shape
    for c in range(channels):
        for i in range(kernel_rows):
            for j in range(kernel_width):
                start = j * dilation - pad
                first = min(max(-start + stride - 1, 0) // stride, grid_width)
                end = max(min((width - 1 - start) // stride + 1, grid_width), first)
                for r in range(grid_rows):
                    row = rows[i, first_row + r]
                    if row < 0:
                        continue
                    if stride == 1:
                        for p in range(first, end):
                            image[c, row, start + p] += columns[c, i, j, r, p]
                    else:
                        for p in range(first, end):
                            image[c, row, start + p * stride] += columns[c, i, j, r, p]


def im2col(side: Side, where: Columns, image: Any, columns: Any, first_row: int = 0) -> None:
    """Write the columns of an image, or of several, one after the other; the padding is 0.

    ``columns`` may be those of some rows of the grid only, from ``first_row`` on.
    """
    image, columns = _shaped(where, image, columns)
    _im2col(image, where.rows, *where.step, columns, first_row)


def col2im(side: Side, where: Columns, columns: Any, image: Any) -> None:
    """Write the image: each pixel is the sum of the elements of columns that see it, added in their order."""
    image.fill(0)
    add_columns(side, where, columns, image)


def add_columns(side: Side, where: Columns, columns: Any, image: Any, first_row: int = 0) -> None:
    """As ``col2im``, but added to what the image holds. ``first_row``: as for ``im2col``."""
    image, columns = _shaped(where, image, columns)
    _add_columns(columns, where.rows, *where.step, image, first_row)


def _shaped(where: Columns, image: Any, columns: Any) -> tuple[Any, Any]:
    """The arrays as the kernels want them: channels of several images like those of one."""
    image = image.reshape(-1, *where.image_shape[1:])
    _, kernel_rows, kernel_width, _, grid_width = where.shape
    rows = columns.size // max(1, len(image) * kernel_rows * kernel_width * grid_width)
    return image, columns.reshape(len(image), kernel_rows, kernel_width, rows, grid_width)
