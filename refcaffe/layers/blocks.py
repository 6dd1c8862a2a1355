"""Arrays in pieces, so that the intermediate results of an elementwise formula stay in the cache.

On the host several pieces are worked on at the same time; on a device there is one piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from refcaffe.kernels.parallel import GRAIN, for_ranges
from refcaffe.side import Side

Formula = Callable[..., Any]


BLOCK = 1 << 15  # elements that leave room for intermediate results


def _step(side: Side, rows: int, size: int, block: int) -> int:
    """How many rows have ``block`` elements; on a device all."""
    return max(1, rows if side.gpu else block * rows // max(1, size))


def row_blocks(side: Side, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Views of the same rows of every array, one after the other: as many as have ``BLOCK`` elements."""
    step = _step(side, len(arrays[0]), arrays[0].size, BLOCK)
    for start in range(0, len(arrays[0]), step):
        yield tuple(array[start : start + step] for array in arrays)


def blocks(side: Side, *arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Flat views of the same elements of every array; all have the same number of elements."""
    return row_blocks(side, *(array.reshape(-1) for array in arrays))


def each_row_block(side: Side, formula: Formula, *arrays: Any) -> None:
    """``formula(*views)`` of the same rows of every array; it must not care for the order of the rows."""
    rows = len(arrays[0])
    step = _step(side, rows, arrays[0].size, GRAIN)
    for_ranges(rows, step, lambda i, j: formula(*(array[i:j] for array in arrays)))


def each_block(side: Side, formula: Formula, *arrays: Any) -> None:
    """``formula(*views)`` of the same elements, flat, of every array."""
    each_row_block(side, formula, *(array.reshape(-1) for array in arrays))
