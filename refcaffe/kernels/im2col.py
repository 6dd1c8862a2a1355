"""im2col and col2im over any number of axes: what a kernel sees at each position, as columns of a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.device.room import require
from refcaffe.kernels import plain_im2col as plain
from refcaffe.kernels.compiled import compiled
from refcaffe.kernels.im2col_runs import add_columns_runs, im2col_runs
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
        self._axes = list(zip(image, grid, kernel, stride, pad, dilation, strict=True))[:-1]
        self.step = (stride[-1], pad[-1], dilation[-1])
        self.image_shape = (channels, prod(image[:-1]), image[-1])
        self.shape = (channels, prod(kernel[:-1]), kernel[-1], prod(grid[:-1]), grid[-1])
        reach = max(pad[-1], (kernel[-1] - 1) * dilation[-1] - pad[-1])  # to either side of a pixel
        steps = len(stride) <= 2 and all(s == 1 for s in stride)
        self.in_runs = steps and grid[-1] == image[-1] and reach <= image[-1]

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The image's row at each place of kernel and grid along all axes but the last; -1 in the padding.

        Made when a pass asks for it: only it needs as much memory. Raises MemoryError.
        """
        rows: NDArray[np.int64] = np.zeros((1, 1), np.int64)
        require(self.shape[1] * self.shape[3] * 4 * rows.itemsize)
        for size, n, k, s, p, d in self._axes:
            place = np.arange(k)[:, None] * d + np.arange(n) * s - p
            place = place[None, :, None, :]
            above = rows[:, None, :, None]
            inside = (above >= 0) & (place >= 0) & (place < size)
            rows = np.where(inside, above * size + place, -1).reshape(len(rows) * k, rows.shape[1] * n)
        return np.ascontiguousarray(rows)

    @cached_property
    def spans(self) -> NDArray[np.int64]:
        """Where every row of ``rows``, if it goes down row by row, begins and ends to be inside of the image."""
        inside = self.rows >= 0
        start = inside.argmax(axis=1)
        return np.stack([start, start + inside.sum(axis=1)], axis=1)


column_map = lru_cache(maxsize=256)(Columns)  # layers ask in every pass, and many of a net are alike


# In both kernels places are unsigned numbers in flat arrays: a signed one might count from the end, and the test
# for that keeps loops from being compiled to whole vectors.


@compiled(plain=plain.im2col)
def _im2col(images: Any, rows: Any, stride: int, pad: int, dilation: int, columns: Any, first_row: int) -> None:
    _, _, height, width = images.shape
    channels, kernel_rows, kernel_width, count, grid_rows, grid_width = columns.shape
    source, target = images.reshape(-1), columns.reshape(-1)
    step, length, to = np.uintp(stride), np.uintp(grid_width), np.uintp(0)
    for c in range(channels):
        for i in range(kernel_rows):
            for j in range(kernel_width):
                start = j * dilation - pad
                first = min(max(-start + stride - 1, 0) // stride, grid_width)
                end = max(min((width - 1 - start) // stride + 1, grid_width), first)
                before, inside, start = np.uintp(first), np.uintp(end - first), start + first * stride
                for n in range(count):
                    top = (n * channels + c) * height
                    for r in range(grid_rows):
                        row = rows[i, first_row + r]
                        if row < 0:
                            for p in range(length):
                                target[to + p] = 0
                        else:
                            at, into = np.uintp((top + row) * width + start), to + before
                            for p in range(before):
                                target[to + p] = 0
                            if stride == 1:  # a loop of its own, which is compiled to whole vectors
                                for p in range(inside):
                                    target[into + p] = source[at + p]
                            else:
                                for p in range(inside):
                                    target[into + p] = source[at + p * step]
                            for p in range(before + inside, length):
                                target[to + p] = 0
                        to += length


@compiled(plain=plain.add_columns)
def _add_columns(columns: Any, rows: Any, stride: int, pad: int, dilation: int, images: Any, first_row: int) -> None:
    _, _, height, width = images.shape
    channels, kernel_rows, kernel_width, count, grid_rows, grid_width = columns.shape
    source, target = columns.reshape(-1), images.reshape(-1)
    step, length, row_start = np.uintp(stride), np.uintp(grid_width), np.uintp(0)
    for c in range(channels):
        for i in range(kernel_rows):
            for j in range(kernel_width):
                start = j * dilation - pad
                first = min(max(-start + stride - 1, 0) // stride, grid_width)
                end = max(min((width - 1 - start) // stride + 1, grid_width), first)
                before, inside, start = np.uintp(first), np.uintp(end - first), start + first * stride
                for n in range(count):
                    top = (n * channels + c) * height
                    for r in range(grid_rows):
                        row = rows[i, first_row + r]
                        if row >= 0:
                            at, into = row_start + before, np.uintp((top + row) * width + start)
                            if stride == 1:
                                for p in range(inside):
                                    target[into + p] += source[at + p]
                            else:
                                for p in range(inside):
                                    target[into + p * step] += source[at + p]
                        row_start += length


def im2col(side: Side, where: Columns, images: Any, columns: Any, first_row: int = 0) -> None:
    """Write the columns of one image or of several; the padding is 0.

    ``columns``, of ``where.shape``, may belong to some rows of the grid only, from ``first_row`` on. For several
    images (N, channels, ...) each of its rows has that of the first image, then that of the second, and so on.
    """
    images, columns = _shaped(where, images, columns)
    if where.in_runs:
        im2col_runs(images, where.rows, where.spans, *where.step[1:], columns, first_row)
    else:
        _im2col(images, where.rows, *where.step, columns, first_row)


def col2im(side: Side, where: Columns, columns: Any, image: Any) -> None:
    """Write the image: each pixel is the sum of the elements of columns that see it, added in their order."""
    image.fill(0)
    add_columns(side, where, columns, image)


def add_columns(side: Side, where: Columns, columns: Any, images: Any, first_row: int = 0, keeps: bool = True) -> None:
    """As ``col2im``, but added to what the images hold; several, and some rows, as for ``im2col``.

    It is faster if the columns need not keep what they hold.
    """
    images, columns = _shaped(where, images, columns)
    if where.in_runs and not keeps:
        add_columns_runs(columns, where.rows, where.spans, *where.step[1:], images, first_row)
    else:
        _add_columns(columns, where.rows, *where.step, images, first_row)


def _shaped(where: Columns, images: Any, columns: Any) -> tuple[Any, Any]:
    """The arrays as the kernels want them: (N, channels, rows, width), (channels, kernel, N, rows, width)."""
    channels, kernel_rows, kernel_width, _, grid_width = where.shape
    images = images.reshape(-1, *where.image_shape) if images.size else images.reshape(0, *where.image_shape)
    rows = columns.size // max(1, channels * kernel_rows * kernel_width * len(images) * grid_width)
    return images, columns.reshape(channels, kernel_rows, kernel_width, len(images), rows, grid_width)
