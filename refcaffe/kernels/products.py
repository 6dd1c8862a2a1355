"""Matrix products, on the host compiled and divided among threads; some are added to what is there already."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from refcaffe.kernels.compiled import has_compiler
from refcaffe.kernels.parallel import for_each, num_threads
from refcaffe.side import Side

_BLOCK = 1 << 19  # elements of a product that a device keeps apart before they are added
_NARROW = 128  # rows or columns that a piece of the work has at least
_BORDER = 32  # of rows or columns between pieces: a whole panel, and of BLAS's fours of dot products
ENOUGH = 1 << 22  # multiplications that are worth more than one thread


def _plain(a: Any, b: Any, bias: Any, out: Any, add: bool) -> None:
    columns = np.matmul(a, b.reshape(*b.shape[:2], prod(b.shape[2:]))).reshape(out.shape)
    if add:
        out += columns
    else:
        out[...] = columns
    if bias.size:
        out += bias[..., None, None]


@cache
def _multiply(dtype: np.dtype[Any]) -> Callable[[Any, Any, Any, Any, bool], None]:
    if not has_compiler():
        return _plain
    from refcaffe.kernels.gemm import multiply_compiled  # imports Numba

    return multiply_compiled(dtype)


def multiply(a: Any, b: Any, out: Any, bias: Any = None, add: bool = False) -> None:
    """``out = a @ b + bias`` or, to ``add``, ``out += a @ b + bias`` on this thread, for stacks of matrices.

    Shapes are (S, M, K), (S, K, N), (S, M, N) and (S, M); columns may belong to several images, one after the other,
    as axes (images, places) instead of N, of ``b`` or of ``out`` or of both. All are of one real type.
    """
    if b.ndim == 3:
        b = b[:, :, None]
    if out.ndim == 3:
        out = out[:, :, None]
    if bias is None:
        bias = np.empty((len(a), 0), out.dtype)
    compiled = _multiply(out.dtype) if out.size and a.shape[2] else _plain
    compiled(a, b, bias, out, add)


def product(side: Side, a: Any, b: Any, out: Any, add: bool = False) -> None:
    """As ``multiply``, on either side, and on the host on all threads."""
    if side.gpu:
        _product_on_device(side, a, b, out, add)
        return
    stack, rows, columns = out.shape
    depth = a.shape[2]
    if out.size * depth <= ENOUGH:
        multiply(a, b, out, add=add)
        return
    # Of many dot products with one vector BLAS is faster, since it copies nothing.
    best = _dot_products if rows == 1 and not add and b.strides[1] == b.itemsize else multiply
    by_columns = columns >= rows and depth >= rows
    divided = columns if by_columns else rows
    # Borders leave no trace in the sums, so that there may be as many pieces as there are threads for.
    step = -(-max(_NARROW, divided // (2 * num_threads())) // _BORDER) * _BORDER
    pieces = -(-divided // step)

    def piece(i: int) -> None:
        s, some = slice(i // pieces, i // pieces + 1), slice(i % pieces * step, (i % pieces + 1) * step)
        if by_columns:
            best(a[s], b[s, :, some], out[s, :, some], add=add)
        else:
            best(a[s, some], b[s], out[s, some], add=add)

    for_each(stack * pieces, piece)


def _dot_products(a: Any, b: Any, out: Any, add: bool) -> None:
    np.matmul(a, b, out=out)


def _product_on_device(side: Side, a: Any, b: Any, out: Any, add: bool) -> None:
    """To add, block by block, so that no second array of the size of ``out`` is needed."""
    if not add:
        side.xp.matmul(a, b, out=out)
        return
    stack, rows, columns = out.shape
    together, step = max(1, _BLOCK // max(1, rows * columns)), max(1, _BLOCK // max(1, columns))
    for s in range(0, stack, together):
        for i in range(0, rows, step):
            stacks, some = slice(s, s + together), slice(i, i + step)
            out[stacks, some] += side.xp.matmul(a[stacks, some], b[stacks])
