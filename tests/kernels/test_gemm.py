"""The compiled matrix product: sums in the order it says, over any shapes and strides."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.kernels import gemm
from refcaffe.kernels.products import multiply
from tests.kernels.both import reals, seeds

sizes = st.one_of(st.integers(1, 70), st.sampled_from([224, 225, 300]))
depths = st.one_of(st.integers(1, 70), st.sampled_from([383, 384, 385, 767, 768, 769, 1153]))


@st.composite
def matrices(draw, real):
    """A stack of matrices of any layout: a function of its shape."""
    rng = np.random.default_rng(draw(seeds))
    turned, spaced = draw(st.booleans()), draw(st.sampled_from([1, 1, 2]))

    def make(rows, columns):
        shape = (2, columns, rows) if turned else (2, rows, columns)
        values = rng.integers(-8, 9, (*shape[:2], shape[2] * spaced)).astype(real)[..., ::spaced]
        return values.swapaxes(1, 2) if turned else values

    return make


@given(st.data(), reals, sizes, depths, sizes, st.booleans(), st.booleans())
def test_any_layout(data, real, rows, depth, columns, add, with_bias):
    """With whole numbers there is no rounding, so that every sum is right to the bit."""
    a = data.draw(matrices(real))(rows, depth)
    b, out = data.draw(matrices(real))(depth, columns), data.draw(matrices(real))(rows, columns)
    bias = np.arange(2 * rows, dtype=real).reshape(2, rows) if with_bias else None
    expected = np.matmul(a, b) + (out if add else 0) + (bias[..., None] if with_bias else 0)
    multiply(a, b, out, bias, add)
    assert (out == expected).all()


@given(seeds, reals, sizes, st.integers(1, 70), st.integers(1, 5), st.integers(1, 70), st.booleans())
def test_columns_of_several_images(seed, real, rows, depth, images, places, add):
    rng = np.random.default_rng(seed)
    a = rng.integers(-8, 9, (1, rows, depth)).astype(real)
    columns = rng.integers(-8, 9, (images, 1, depth, places)).astype(real).transpose(1, 2, 0, 3)
    outs = rng.integers(-8, 9, (images, 1, rows, places)).astype(real)
    expected = np.matmul(a, columns.transpose(2, 0, 1, 3)) + (outs if add else 0)
    for given_columns in columns, np.ascontiguousarray(columns), columns.reshape(1, depth, -1):
        out = outs.copy()
        multiply(a, given_columns, out.transpose(1, 2, 0, 3), add=add)
        assert (out == expected).all()


@given(seeds, depths, st.integers(1, 40))
def test_order_of_the_sums(seed, depth, columns):
    """One chain of fused multiply-adds per part of the depth; the parts one after the other."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((3, depth)).astype(np.float32), rng.standard_normal((depth, columns)).astype(np.float32)
    expected = np.zeros((3, columns), np.float32)
    start = 0
    while start < depth:
        part, end = np.zeros((3, columns), np.float32), start + gemm._part(depth - start)
        for k in range(start, end):
            # The product of two singles is exact; the sum's first rounding, far behind a single's bits, is hardly seen.
            part = (a[:, k, None].astype(np.longdouble) * b[k] + part).astype(np.float32)
        expected += part
        start = end
    out = np.empty((1, 3, columns), np.float32)
    multiply(a[None], b[None], out)
    assert out[0].tobytes() == expected.tobytes()


@pytest.mark.parametrize("left, part", [(1, 1), (384, 384), (385, 192), (500, 256), (767, 384), (768, 384)])
def test_parts_of_the_depth(left, part):
    assert gemm._part(left) == part


@given(seeds, sizes, depths, sizes)
def test_no_column_depends_on_another(seed, rows, depth, columns):
    """So that threads may divide a product by its columns or rows anywhere."""
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((1, *shape), np.float32) for shape in ((rows, depth), (depth, columns)))
    whole, parts = np.empty((2, 1, rows, columns), np.float32)
    multiply(a, b, whole)
    row, column = rows // 3, columns // 2
    for some in slice(0, row), slice(row, rows):
        for others in slice(0, column), slice(column, columns):
            multiply(a[:, some], b[..., others], parts[:, some, others])
    assert whole.tobytes() == parts.tobytes()


def test_arrays_that_begin_anywhere():
    """Memory that users hand to a blob may be a part of a file."""
    rng, block = np.random.default_rng(0), np.zeros(4 * 900, np.uint8)
    a, b, out = (block[i : i + 4 * n].view(np.float32) for i, n in ((1, 30), (203, 600), (2703, 180)))
    for array in a, b:
        array[:] = rng.integers(-8, 9, array.size)
    a.flags.writeable = False
    expected = np.matmul(a.copy().reshape(1, 3, 10), b.copy().reshape(1, 10, 60))
    multiply(a.reshape(1, 3, 10), b.reshape(1, 10, 60), out.reshape(1, 3, 60))
    assert (out.reshape(1, 3, 60) == expected).all()


def test_nothing_to_multiply():
    out = np.full((1, 3, 4), 7, np.float32)
    multiply(np.ones((1, 3, 0), np.float32), np.ones((1, 0, 4), np.float32), out, add=True)
    assert (out == 7).all()
    multiply(np.ones((1, 3, 0), np.float32), np.ones((1, 0, 4), np.float32), out, np.ones((1, 3), np.float32))
    assert (out == 1).all()
    multiply(np.ones((1, 3, 2), np.float32), np.ones((1, 2, 0), np.float32), np.empty((1, 3, 0), np.float32))


# Products of some shapes, as the bytes of one file; the argument says whether the vectors are to be narrow.
PROGRAM = """
import sys
from llvmlite import binding
if sys.argv[2] == "narrow":
    features = binding.get_host_cpu_features()
    features["avx512f"] = False
    binding.get_host_cpu_features = lambda: features
import numpy as np
from refcaffe.kernels import gemm
from refcaffe.kernels.products import multiply

assert sys.argv[2] == "wide" or (gemm.BYTES, gemm.ROWS) == (32, 6)
rng, outs = np.random.default_rng(5), []
for real in np.float32, np.float64:
    for rows, depth, columns in (1, 1, 1), (5, 900, 17), (40, 30, 100), (300, 400, 33), (16, 9, 200):
        a, b = rng.standard_normal((2, rows, depth)).astype(real), rng.standard_normal((2, columns, depth)).astype(real)
        for given in b.swapaxes(1, 2), np.ascontiguousarray(b.swapaxes(1, 2)):
            outs.append(np.empty((2, rows, columns), real))
            multiply(a, given, outs[-1], a[:, :, 0])
np.savez(sys.argv[1], *outs)
"""


def test_the_width_of_vectors_leaves_no_trace(tmp_path):
    found = []
    for width in "wide", "narrow":
        file, cache = tmp_path / f"{width}.npz", {"NUMBA_CACHE_DIR": str(tmp_path / width)}
        command = [sys.executable, "-c", PROGRAM, str(file), width]
        subprocess.run(command, check=True, env=os.environ | cache, timeout=300)
        found.append(np.load(file))
    assert len(found[0].files) == 20
    for name in found[0].files:
        assert found[0][name].tobytes() == found[1][name].tobytes(), name
