"""im2col and col2im without a compiler: one place of the kernel after the other, for all channels, images and windows.

Arrays and numbers are those of the kernels in ``im2col``, which those of ``im2col_runs`` and ``im2col_device`` are made
to fit: all find the same elements of columns in the same pixels.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def _padded(images: Any, columns: Any, stride: int, pad: int, dilation: int) -> Any:
    """Images, (channels, N, height + 1, more), with all that windows see: the last row, number -1, is padding too."""
    count, channels, height, width = images.shape
    seen = (columns.shape[5] - 1) * stride + (columns.shape[2] - 1) * dilation + 1
    padded = np.zeros((channels, count, height + 1, max(pad + width, seen)), images.dtype)
    padded[:, :, :height, pad : pad + width] = images.swapaxes(0, 1)
    return padded


def im2col(images: Any, rows: Any, stride: int, pad: int, dilation: int, columns: Any, first_row: int) -> None:
    """As ``im2col._im2col``."""
    padded = _padded(images, columns, stride, pad, dilation)
    for i, row in enumerate(rows[:, first_row : first_row + columns.shape[4]]):
        band = padded[:, :, row]
        for j in range(columns.shape[2]):
            columns[:, i, j] = band[..., _seen(j, columns, stride, dilation)]


def add_columns(
    columns: Any, rows: Any, stride: int, pad: int, dilation: int, images: Any, first_row: int, order: int = 1
) -> None:
    """As ``im2col._add_columns``; for ``order`` -1 the last place of the kernel comes first."""
    padded = _padded(images, columns, stride, pad, dilation)
    for i in range(columns.shape[1])[::order]:
        row = rows[i, first_row : first_row + columns.shape[4]]
        band = padded[:, :, row]
        for j in range(columns.shape[2])[::order]:
            band[..., _seen(j, columns, stride, dilation)] += columns[:, i, j]
        padded[:, :, row] = band
    images[...] = padded[:, :, :-1, pad : pad + images.shape[3]].swapaxes(0, 1)


def _seen(j: int, columns: Any, stride: int, dilation: int) -> slice:
    """Which pixels along a padded row the windows see at place ``j`` of the kernel."""
    return slice(j * dilation, j * dilation + columns.shape[5] * stride, stride)


# The other modules' kernels.


def im2col_runs(images: Any, rows: Any, spans: Any, pad: int, dilation: int, columns: Any, first_row: int) -> None:
    """As ``im2col_runs.im2col_runs``."""
    im2col(images, rows, 1, pad, dilation, columns, first_row)


def add_columns_runs(columns: Any, rows: Any, spans: Any, pad: int, dilation: int, images: Any, first_row: int) -> None:
    """As ``im2col_runs.add_columns_runs``, but the columns stay as they are."""
    add_columns(columns, rows, 1, pad, dilation, images, first_row)


def device_im2col(image: Any, rows: Any, stride: int, pad: int, dilation: int, columns: Any) -> None:
    """As ``im2col_device._im2col``."""
    im2col(image[None], rows, stride, pad, dilation, columns[:, :, :, None], 0)


def device_gather(columns: Any, rows: Any, stride: int, pad: int, dilation: int, image: Any) -> None:
    """As ``im2col_device._gather``."""
    image.fill(0)
    add_columns(columns[:, :, :, None], rows, stride, pad, dilation, image[None], 0, order=-1)
