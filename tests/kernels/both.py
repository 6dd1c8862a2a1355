"""A kernel and its form in NumPy side by side."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

reals = st.sampled_from([np.float32, np.float64])
seeds = st.integers(0, 2**32 - 1)
ODD = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38, -3e38])


def assert_same(kernel, *args, work=()):
    """The compiled kernel and ``kernel.plain`` return the same, and write the same bits to their arrays.

    Not-a-numbers count as one. Both start from copies of ``args``; those numbered in ``work`` may differ afterwards.
    """
    assert kernel.plain is not kernel._function
    compiled, plain = (tuple(np.array(arg) if isinstance(arg, np.ndarray) else arg for arg in args) for _ in range(2))
    with np.errstate(all="ignore"):
        assert kernel(*compiled) == kernel.plain(*plain)
    for i, (one, other) in enumerate(zip(compiled, plain)):
        if isinstance(one, np.ndarray) and i not in work:
            assert bits(one) == bits(other), (i, one, other)


def bits(array):
    """The bytes of an array, with one not-a-number for all of them."""
    array = np.array(array)
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array.tobytes()


def random(rng, shape, dtype, odd=0.0):
    """Values of very different sizes, so that the order of sums is seen; a part of them ``odd``."""
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-3, 4, shape)
    return np.where(rng.random(shape) < odd, rng.choice(ODD, shape), values).astype(dtype)
