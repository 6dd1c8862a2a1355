"""Columns in NumPy give the compiled kernels' bits."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import im2col, im2col_device, im2col_runs
from refcaffe.side import HOST
from tests.kernels.both import assert_same, random, reals, seeds


@st.composite
def maps(draw):
    """Windows over one to three axes; some reach far beyond an image."""
    numbers = draw(
        st.lists(st.tuples(*(st.integers(1, n) for n in (7, 3, 3, 3)), st.integers(0, 3)), min_size=1, max_size=3)
    )
    image, kernel, stride, dilation, pad = zip(*numbers)
    grid = [max(0, (n + 2 * p - d * (k - 1) - 1) // s + 1) for n, k, s, d, p in numbers]
    return im2col.Columns(draw(st.integers(1, 3)), image, grid, kernel, stride, pad, dilation)


@st.composite
def same_size_maps(draw):
    """Windows in steps of one pixel, as many along a row as there are pixels."""
    numbers = draw(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 2), st.integers(0, 5)), min_size=1, max_size=2))
    dilation, pad = [d for _, d, _ in numbers], [p * d for p, d, _ in numbers]
    kernel, image = [2 * p + 1 for p, _, _ in numbers], [more + p * d + 1 for p, d, more in numbers]
    return im2col.Columns(draw(st.integers(1, 3)), image, image, kernel, [1] * len(image), pad, dilation)


def arrays(where, real, seed, count, part):
    """(images, columns, the first row of the grid that these belong to): all of it, or a ``part``."""
    channels, kernel_rows, kernel_width, grid_rows, grid_width = where.shape
    rng = np.random.default_rng(seed)
    first, end = sorted(rng.integers(0, grid_rows + 1, 2)) if part else (0, grid_rows)
    shape = channels, kernel_rows, kernel_width, count, int(end - first), grid_width
    return random(rng, (count, *where.image_shape), real), random(rng, shape, real, odd=0.02), int(first)


@given(maps(), reals, seeds, st.integers(1, 3), st.booleans())
def test_the_hosts(where, real, seed, count, part):
    images, columns, first = arrays(where, real, seed, count, part)
    assert_same(im2col._im2col, images, where.rows, *where.step, columns, first)
    assert_same(im2col._add_columns, columns, where.rows, *where.step, images, first)


@given(same_size_maps(), reals, seeds, st.integers(1, 3), st.booleans())
def test_runs(where, real, seed, count, part):
    assert where.in_runs
    images, columns, first = arrays(where, real, seed, count, part)
    table = where.rows, where.spans, *where.step[1:]
    assert_same(im2col_runs.im2col_runs, images, *table, columns, first)
    assert_same(im2col_runs.add_columns_runs, columns, *table, images, first, work=[0])


@given(maps(), reals, seeds)
def test_a_devices(where, real, seed):
    images, columns, _ = arrays(where, real, seed, 1, part=False)
    image, columns = images[0], columns.reshape(where.shape)
    assert_same(im2col_device._im2col, image, where.rows, *where.step, columns)
    assert_same(im2col_device._gather, columns, where.rows, *where.step, image)


def test_windows_wider_than_an_image_touch_nothing_beside_it():
    where = im2col.Columns(1, (3, 1), (3, 1), (3, 5), (1, 1), (1, 2), (1, 1))
    images = np.full((3, 1, 3, 1), -0.0, np.float32)  # a 0 that is added to it would show
    columns = np.zeros((1, 15, 3), np.float32)
    im2col.add_columns(HOST, where, columns, images[1:2], 0, keeps=False)
    assert np.signbit(images[[0, 2]]).all()
