"""Formulas over planes in NumPy give the compiled kernels' bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import planes
from tests.kernels.both import assert_same, random, reals, seeds


@given(reals, seeds, st.integers(1, 5), st.integers(0, 20), st.sampled_from([0, 0.3]))
def test_formulas(real, seed, count, places, odd):
    rng = np.random.default_rng(seed)
    x, y, out = random(rng, (3, count, places), real, odd)
    value, other, deviation = random(rng, (3, count), real, odd)
    value[rng.random(count) < 0.3] = rng.choice([0.0, -0.0])
    for kernel, *args in (
        (planes.squared_distance, x, value, out),
        (planes.product, x, y, out),
        (planes.multiply, x, y),
        (planes.normalize, y, value, deviation),
        (planes.normalize_and_keep, y, out, value, deviation),
        (planes.normalize_diff, x, y, value, other, deviation, real(-0.3)),
        (planes.scale, y, value),
        (planes.shift, y, value),
    ):
        assert_same(kernel, *args)
