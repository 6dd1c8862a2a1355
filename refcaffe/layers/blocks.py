"""Arrays in pieces, so that the intermediate results of an elementwise formula stay in the cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from refcaffe.side import Side

BLOCK = 1 << 15  # elements


def row_blocks(side: Side, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Views of the same rows of every array: as many as have ``BLOCK`` elements, on a device all."""
    rows, size = len(arrays[0]), arrays[0].size
    step = rows if side.gpu else max(1, BLOCK * rows // max(1, size))
    for start in range(0, rows, max(1, step)):
        yield tuple(array[start : start + step] for array in arrays)


def blocks(side: Side, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Flat views of the same elements of every array; all have the same number of elements."""
    return row_blocks(side, *(array.reshape(-1) for array in arrays))
