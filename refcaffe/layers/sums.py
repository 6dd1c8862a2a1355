"""Arithmetic whose rounding or special cases upstream fixes and array modules do not."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.blocks import blocks
from refcaffe.side import Side

# For ufuncs: compute in double and round once. A C library's float functions come to that nearly always,
# an array module's own are off in every third value.
IN_DOUBLE: dict[str, Any] = {"dtype": np.float64, "casting": "same_kind"}


def in_double(xp: Any) -> dict[str, Any]:
    """``IN_DOUBLE`` for NumPy; CUDA's own functions of floats are good to an ulp or two, and fast."""
    return IN_DOUBLE if xp is np else {}


def check_size(side: Side, count: int, file: str = "mkl_alternate.hpp") -> None:
    """Refuse empty arrays where upstream's functions on vectors do."""
    if count <= 0 and not side.gpu:
        Checker(file).gt(count, 0, "n > 0")


def in_order(xp: Any, start: Any, terms: Any) -> Any:
    """``start`` plus the terms along the last axis, one after the other, each sum rounded to their type."""
    sums = xp.empty((*terms.shape[:-1], terms.shape[-1] + 1), terms.dtype)
    sums[..., 0] = start
    sums[..., 1:] = terms
    return xp.cumsum(sums, axis=-1)[..., -1]


def sum_in_order(xp: Any, array: Any, axis: int) -> Any:
    """The sum along an axis, one term after the other, each sum rounded; CuPy adds up in an order of its own."""
    if xp is not np or not array.shape[axis]:
        return xp.sum(array, axis=axis)
    return np.add.accumulate(array, axis=axis).take(-1, axis=axis)


def absolute_sum(side: Side, array: Any) -> Any:
    """The sum of absolute values, as a number of the host."""
    return array.dtype.type(side.host(abs(array).sum()))


def scale(array: Any, factor: Any) -> None:
    """array *= factor as BLAS does it: by 0 everything becomes +0, NaN and infinity too."""
    if factor == 0:
        array.fill(0)
    else:
        array *= factor


def affine(xp: Any, x: Any, factor: Any, shift: Any, out: Any) -> Any:
    """factor * x + shift, made in ``out`` step by step; ``x`` itself if there is nothing to do."""
    if factor == 1 and shift == 0:
        return x
    if out is not x:
        xp.copyto(out, x)
    if factor != 1:
        scale(out, factor)
    if shift != 0:
        out += shift
    return out


def scaled(xp: Any, factor: Any, x: Any, out: Any) -> None:
    """out = factor * x as BLAS adds it to 0: never -0, and 0 if the factor is 0, whatever ``x`` is."""
    if factor == 0:
        out.fill(0)
    else:
        xp.multiply(x, factor, out=out)
        out += 0


def add_scaled(array: Any, factor: Any, x: Any) -> None:
    """array += factor * x as BLAS does it: nothing happens if the factor is 0, whatever ``x`` is."""
    if factor == 1:
        array += x
    elif factor != 0:
        array += factor * x


def sign(side: Side, x: Any, out: Any) -> None:
    """1, 0 or -1; 0 for NaN."""
    for x_part, out_part in blocks(side, x, out):
        out_part[...] = (x_part > 0).view(np.int8) - (x_part < 0).view(np.int8)


def _bits(x: Any) -> Any:
    return x.view(np.int32 if x.dtype == np.float32 else np.int64)


def keep(x: Any, condition: Any) -> Any:
    """``x`` where the condition is true, else +0. Without the branches that make ``where`` slow."""
    return (_bits(x) * condition).view(x.dtype)


def choose(condition: Any, a: Any, b: Any, out: Any) -> None:
    """``out`` = a where the condition is true, else b (which may be ``out``). Without branches, too."""
    change = _bits(a) - _bits(b)
    change *= condition
    change += _bits(b)
    out[...] = change.view(out.dtype)


def parts(x: Any) -> tuple[Any, Any]:
    """max(x, 0) and min(x, 0), where of two zeros ``x`` itself wins; NaN twice for NaN.

    Functions like ``maximum`` leave open which of two zeros they give.
    """
    return keep(x, ~(x < 0)), keep(x, ~(x > 0))
