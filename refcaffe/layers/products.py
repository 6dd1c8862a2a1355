"""Matrix products that BLAS would add to what is there already."""

from __future__ import annotations

from typing import Any

from refcaffe.side import Side

_BLOCK = 1 << 18  # elements of the product that are kept apart before they are added


def add_product(side: Side, a: Any, b: Any, out: Any) -> None:
    """``out += a @ b`` for stacks of matrices (S, M, K), (S, K, N), (S, M, N).

    It is done block by block, so that no second array of the size of ``out`` is needed.
    """
    matmul = side.xp.matmul
    stack, rows, columns = out.shape
    together = _BLOCK // max(1, rows * columns)
    if together:
        for start in range(0, stack, together):
            block = slice(start, start + together)
            out[block] += matmul(a[block], b[block])
        return
    step = max(1, _BLOCK // columns)
    for i in range(stack):
        for start in range(0, rows, step):
            block = slice(start, start + step)
            out[i, block] += matmul(a[i, block], b[i])
