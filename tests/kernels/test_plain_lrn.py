"""Local response normalization in NumPy gives the compiled kernels' bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import lrn, lrn_device
from tests.kernels.both import assert_same, random, reals, seeds

few = st.integers(1, 7)
shapes = st.tuples(st.integers(1, 3), few, st.integers(1, 9))


def arrays(seed, count, shape, real):
    """Some arrays, the last of which has no zeros: to divide by."""
    rng = np.random.default_rng(seed)
    return *(random(rng, shape, real) for _ in range(count - 1)), rng.uniform(0.5, 3, shape).astype(real)


@given(reals, seeds, shapes, st.integers(0, 4), st.data())
def test_the_hosts(real, seed, shape, half, data):
    x, y, dy, dx, scale = arrays(seed, 5, shape, real)
    first = data.draw(st.integers(0, shape[2] - 1))
    place = data.draw(st.integers(0, shape[0] - 1)), first, data.draw(st.integers(first + 1, shape[2]))
    ratio = np.empty((shape[1] + 1, place[2] - first), real)
    assert_same(lrn._scale, x, *place, half, real(1.3), real(0.7), scale)
    assert_same(lrn._subtract_neighbours, x, y, dy, scale, *place, half, real(0.7), ratio, dx, work=[9])


@given(reals, seeds, shapes, few)
def test_a_devices(real, seed, shape, size):
    x, y, dy, power, dx, scale = arrays(seed, 6, shape, real)
    total = np.empty(shape[2], real)
    assert_same(lrn_device._scale, x, size, real(1.3), real(0.7), total, scale, work=[4])
    assert_same(lrn_device._backward, x, y, dy, scale, power, size, real(0.7), total, dx, work=[7])
