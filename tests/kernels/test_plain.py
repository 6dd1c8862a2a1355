"""Kernels that go from element to element: their forms in NumPy give the same bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import blas, leveldb, relu, rows, tanh
from tests.kernels.both import assert_same, bits, random, reals, seeds

sizes = st.integers(0, 100)


@given(reals, seeds, sizes, st.sampled_from([0, 0.1, -0.5, 2]))
def test_relu(real, seed, size, slope):
    x, dx = random(np.random.default_rng(seed), (2, size), real, odd=0.3)
    assert_same(relu._forward, x, real(slope), real(0))
    assert_same(relu._backward, dx, x, real(slope), real(0), real(1))


@given(seeds, sizes, st.floats(-1e3, 1e3, width=32))
def test_axpy(seed, size, alpha):
    x, y = random(np.random.default_rng(seed), (2, size), np.float32, odd=0.1)
    assert_same(blas._axpy_float32, np.float32(alpha), x, y)


@given(st.binary(max_size=50))
def test_checksums(data):
    assert_same(leveldb._crc32c, np.frombuffer(data, np.uint8), leveldb._table())


@given(reals, seeds, st.integers(1, 5), st.integers(0, 8), st.integers(0, 5))
def test_rows(real, seed, count, named, length):
    rng = np.random.default_rng(seed)
    some, target = random(rng, (named, length), real, odd=0.05), random(rng, (count, length), real)
    assert_same(rows._add_rows, rng.integers(0, count, named), some, target)
    order = rng.permutation(named).astype(real)
    begins = rng.integers(0, named + 1, count).astype(real)
    counts = rng.integers(0, named + 1 - begins).astype(real)
    assert_same(rows._sum_rows, order, begins, counts, some, target)


@given(seeds)
def test_tanh_of_every_size(seed):
    """2 ** 14 of the 2 ** 32 numbers there are."""
    x = np.random.default_rng(seed).integers(0, 2**32, 2**14, np.uint32).view(np.float32)
    assert_same(tanh.tanh_float, x, np.empty_like(x))


def test_tanh_where_its_forms_meet():
    borders = [2.0**-25, 0.34657359 / 2, 0.34657359 * 1.5, 1, 22, *(np.arange(1, 130) * np.log(2) / 4)]
    around = np.arange(-20, 21, dtype=np.int32)[:, None] + np.float32(borders).view(np.int32)
    x = around.reshape(-1).view(np.float32)
    x = np.concatenate([x, -x, np.float32([0, -0.0, np.inf, -np.inf, np.nan])])
    assert_same(tanh.tanh_float, x, np.empty_like(x))
    in_place = x.copy()
    with np.errstate(all="ignore"):
        tanh.tanh_float.plain(in_place, in_place)
    tanh.tanh_float(x, x)
    assert bits(in_place) == bits(x)
