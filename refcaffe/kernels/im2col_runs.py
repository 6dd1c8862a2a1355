"""im2col and col2im where a window moves in steps of one pixel and the grid is as wide as the image.

Then neighbours in a row of columns are neighbours in the image, from one row of the grid to the next: they are copied
in runs of many rows, and what belongs to the padding at both ends of a row is put right afterwards.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels import plain_im2col as plain
from refcaffe.kernels.compiled import compiled

# ``spans``: (kernel rows, 2), from which to which row of the grid a row of the kernel sees rows of the image.


@compiled(plain=plain.im2col_runs)
def im2col_runs(images: Any, rows: Any, spans: Any, pad: int, dilation: int, columns: Any, first_row: int) -> None:
    """As ``im2col``: (N, channels, rows, width) to (channels, kernel rows, kernel width, N, rows, width)."""
    _, _, height, width = images.shape
    channels, kernel_rows, kernel_width, count, grid_rows, _ = columns.shape
    source, target, line = images.reshape(-1), columns.reshape(-1), np.uintp(width)
    to = np.uintp(0)
    for c in range(channels):
        for i in range(kernel_rows):
            above = min(max(spans[i, 0] - first_row, 0), grid_rows)
            below = max(min(spans[i, 1] - first_row, grid_rows), above)
            for j in range(kernel_width):
                start = j * dilation - pad
                before = np.uintp(min(max(-start, 0), width))
                after = np.uintp(max(min(width - start, width), int(before)))
                for n in range(count):
                    first, end = to + np.uintp(above) * line, to + np.uintp(below) * line
                    stop = to + np.uintp(grid_rows) * line
                    for p in range(to, first):
                        target[p] = 0
                    if below > above:
                        top = ((n * channels + c) * height + rows[i, first_row + above]) * width
                        at, into = np.uintp(top + start + int(before)), first + before
                        for p in range(end - line + after - into):
                            target[into + p] = source[at + p]
                        while first < end:
                            for p in range(before):
                                target[first + p] = 0
                            for p in range(after, line):
                                target[first + p] = 0
                            first += line
                    for p in range(end, stop):
                        target[p] = 0
                    to = stop


@compiled(plain=plain.add_columns_runs)
def add_columns_runs(columns: Any, rows: Any, spans: Any, pad: int, dilation: int, images: Any, first_row: int) -> None:
    """As ``add_columns``; what of the columns belongs to the padding is cleared."""
    _, _, height, width = images.shape
    channels, kernel_rows, kernel_width, count, grid_rows, _ = columns.shape
    source, target, line = columns.reshape(-1), images.reshape(-1), np.uintp(width)
    origin = np.uintp(0)
    for c in range(channels):
        for i in range(kernel_rows):
            above = min(max(spans[i, 0] - first_row, 0), grid_rows)
            below = max(min(spans[i, 1] - first_row, grid_rows), above)
            for j in range(kernel_width):
                start = j * dilation - pad
                before = np.uintp(min(max(-start, 0), width))
                after = np.uintp(max(min(width - start, width), int(before)))
                for n in range(count):
                    if below > above:
                        first, end = origin + np.uintp(above) * line, origin + np.uintp(below) * line
                        top = ((n * channels + c) * height + rows[i, first_row + above]) * width
                        at, into = first + before, np.uintp(top + start + int(before))
                        length = end - line + after - at
                        while first < end:
                            for p in range(before):
                                source[first + p] = 0
                            for p in range(after, line):
                                source[first + p] = 0
                            first += line
                        for p in range(length):
                            target[into + p] += source[at + p]
                    origin += np.uintp(grid_rows) * line
