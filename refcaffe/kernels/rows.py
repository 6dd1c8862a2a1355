"""Rows of a matrix, by index."""

from __future__ import annotations

from typing import Any

from refcaffe.kernels.compiled import compiled
from refcaffe.side import Side


@compiled
def _add_rows(index: Any, rows: Any, target: Any) -> None:
    for n in range(len(index)):
        for j in range(rows.shape[1]):
            target[index[n], j] += rows[n, j]


def add_rows(side: Side, index: Any, rows: Any, target: Any) -> None:
    """``target[index[n]] += rows[n]``, one n after the other. Matrices, and int64 numbers in range."""
    _add_rows(index, rows, target)
