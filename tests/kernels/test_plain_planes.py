"""Formulas over planes in NumPy give the compiled kernels' bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import planes
from tests.kernels.both import assert_same, bits, random, reals, seeds


@given(reals, seeds, st.integers(1, 5), st.integers(0, 20), st.sampled_from([0, 0.3]))
def test_formulas(real, seed, count, places, odd):
    rng = np.random.default_rng(seed)
    x, y, out = random(rng, (3, count, places), real, odd)
    value, deviation = random(rng, (2, count), real, odd)
    value[rng.random(count) < 0.3] = rng.choice([0.0, -0.0])
    for kernel, *args in (
        (planes.product, x, y, out),
        (planes.multiply, x, y),
        (planes.normalize, y, value, deviation),
        (planes.scale, y, value),
        (planes.shift, y, value),
    ):
        assert_same(kernel, *args)


@given(reals, seeds, st.integers(1, 3), st.integers(1, 6), st.integers(0, 20), st.sampled_from([0, 0.3]))
def test_formulas_for_channels(real, seed, images, channels, places, odd):
    rng = np.random.default_rng(seed)
    first = int(rng.integers(0, channels))
    x, y, kept = random(rng, (3, images, channels, places), real, odd)
    out = random(rng, (images, channels - first, places), real)
    value, other, deviation = random(rng, (3, channels - first), real, odd)
    for kernel, *args in (
        (planes.squared_distance, x, first, value, out),
        (planes.channel_product, x, y, first, out),
        (planes.normalize_and_keep, y, kept, first, value, deviation),
        (planes.normalize_diff, x, y, first, value, other, deviation, real(-0.3)),
    ):
        assert_same(kernel, *args)


@given(reals, seeds, st.integers(1, 4), st.integers(1, 70), st.integers(1, 20))
def test_channels_are_divided_without_a_trace(real, seed, images, channels, places):
    x = random(np.random.default_rng(seed), (images, channels, places), real)
    ones, result, parts = np.ones(places, real), np.empty((images, channels), real), []

    def some(part):
        parts.extend(range(part.start, part.stop))
        result[:, part] = planes.channel_sums(x[:, part], ones)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planes, "TOGETHER", 1)
        planes.for_channels(x.shape, some)
    assert sorted(parts) == list(range(channels))
    assert bits(result) == bits(planes.sums(x, ones))
