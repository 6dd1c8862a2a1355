"""Pooling in NumPy gives the compiled kernels' bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import pooling, pooling_device
from tests.kernels.both import assert_same, random, reals, seeds


@st.composite
def windows(draw):
    """Windows of planes; some lie partly or wholly outside, some leave pixels out."""
    size, count = (tuple(draw(st.integers(low, 9)) for _ in "hw") for low in (1, 0))
    kernel, stride = (tuple(draw(st.integers(1, 5)) for _ in "hw") for _ in range(2))
    pad = tuple(draw(st.integers(0, k)) for k in kernel)
    return pooling.Windows(size, count, kernel, stride, pad, draw(reals))


@st.composite
def pools(draw, odd=0.0):
    """(windows, x, y) with x and y of anything."""
    some, rng, planes = draw(windows()), np.random.default_rng(draw(seeds)), draw(st.integers(1, 3))
    size, count = some.geometry[:2], some.geometry[2:4]
    return some, *(random(rng, (planes, *shape), some.divisors.dtype, odd) for shape in (size, count))


def flat(planes):
    return planes.reshape(len(planes), -1)


@pytest.mark.parametrize("top_mask", [False, True])
@given(pools(odd=0.3))
def test_maximum(top_mask, pool):
    some, x, y = pool
    phases, real = some.phases, x.dtype.type
    work = np.empty(len(phases.cells), real), np.empty(phases.length, real), np.empty(phases.length, np.int32)
    limits = real(-pooling.FLT_MAX), real(-np.inf)
    mask = np.empty(y.shape, real if top_mask else np.int32)
    where = phases.cells, phases.taps, phases.pitch
    assert_same(pooling._max_forward, flat(x), *where, *limits, *work, y, mask, work=[6, 7, 8])


@given(pools(), seeds, st.sampled_from([np.int32, np.float32, np.float64]))
def test_maximum_backward(pool, seed, kind):
    _, dx, dy = pool
    mask = np.random.default_rng(seed).integers(-1, dx[0].size + 1, dy.shape).astype(kind)
    assert_same(pooling._max_backward, flat(dy), flat(mask), flat(dx))


@given(pools(odd=0.05))
def test_average(pool):
    some, x, y = pool
    spans = some.rows, some.columns, some.divisors
    assert_same(pooling._average_forward, x, *spans, x.dtype.type(0), y)
    assert_same(pooling._average_backward, y, *spans, x)


@given(pools(), seeds)
def test_stochastic(pool, seed):
    some, x, y = pool
    spans, real = (some.rows, some.columns), x.dtype.type
    shares = 1 - np.random.default_rng(seed).choice([0, 0.3, 0.6], y.shape).astype(real)
    assert_same(pooling_device._stochastic_train, np.abs(x), *spans, real(0), shares, y)
    assert_same(pooling_device._stochastic_train, x, *spans, real(0), shares, y)
    assert_same(pooling_device._stochastic_test, x, *spans, real(0), y)


@given(pools(odd=0.05), seeds)
def test_stochastic_backward(pool, seed):
    some, dx, dy = pool
    chosen = np.random.default_rng(seed).integers(0, dx.size, dy.shape).astype(dx.dtype)
    spans, real = (some.rows, some.columns), dx.dtype.type
    assert_same(pooling_device._stochastic_backward, dy, chosen, *spans, real(0), real(1), dx)
