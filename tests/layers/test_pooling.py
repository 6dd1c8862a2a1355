"""Pooling and SPP: windows, sizes, ties and numbers that are none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.proto.caffe_pb2 import LayerParameter, PoolingParameter

SMALL = settings(max_examples=40, deadline=None)
FLT_MAX = np.finfo(np.float32).max


@st.composite
def poolings(draw):
    """A Pooling with sizes for height and width apart, and a plane's size."""
    param = LayerParameter(type="Pooling")
    pooling = param.pooling_param
    pooling.kernel_h, pooling.kernel_w = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    pooling.stride_h, pooling.stride_w = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    pooling.pad_h, pooling.pad_w = (draw(st.integers(0, k - 1)) for k in (pooling.kernel_h, pooling.kernel_w))
    pooling.round_mode = draw(st.sampled_from([PoolingParameter.CEIL, PoolingParameter.FLOOR]))
    size = tuple(
        draw(st.integers(max(1, k - 2 * p), 8))
        for k, p in ((pooling.kernel_h, pooling.pad_h), (pooling.kernel_w, pooling.pad_w))
    )
    return param, size


def outputs(n, k, s, p, padded, round_mode):
    steps = (n + 2 * p - k) / s
    count = (math.floor(steps) if round_mode == PoolingParameter.FLOOR else math.ceil(steps)) + 1
    return count - 1 if padded and (count - 1) * s >= n + p else count


def spans(param, size):
    """For each axis: (start, end, end with padding) of every window, before clipping at the start."""
    q = param.pooling_param
    padded = bool(q.pad_h or q.pad_w)
    axes = ((size[0], q.kernel_h, q.stride_h, q.pad_h), (size[1], q.kernel_w, q.stride_w, q.pad_w))
    return [
        [
            (i * s - p, min(i * s - p + k, n), min(i * s - p + k, n + p))
            for i in range(outputs(n, k, s, p, padded, q.round_mode))
        ]
        for n, k, s, p in axes
    ]


def run(param, x, tops=1, dy=None, dtype=np.float32):
    made = create(param, dtype)
    bottom, top = [Blob(x.shape, dtype)], [Blob(dtype=dtype) for _ in range(tops)]
    made.set_up(bottom, top)
    bottom[0].mutable_cpu_data()[...] = x
    made.forward(bottom, top)
    if dy is not None:
        top[0].mutable_cpu_diff()[...] = dy(top[0].shape)
        made.backward(top, [True], bottom)
    return bottom[0], top


@SMALL
@given(poolings(), st.sampled_from([np.float32, np.float64]), st.integers(1, 2))
def test_maximum(pooling, dtype, tops):
    param, size = pooling
    rng = np.random.default_rng(0)
    x = rng.integers(-3, 3, (2, 2, *size)).astype(dtype)  # many ties
    bottom, top = run(param, x, tops, lambda shape: rng.integers(-8, 8, shape), dtype)
    rows, columns = spans(param, size)
    assert top[0].shape == (2, 2, len(rows), len(columns))
    dx = np.zeros_like(x)
    for i, (h0, h1, _) in enumerate(rows):
        for j, (w0, w1, _) in enumerate(columns):
            for n, c in np.ndindex(2, 2):
                window = x[n, c, max(h0, 0) : h1, max(w0, 0) : w1]
                y, mask = -FLT_MAX, -1
                if window.size:
                    h, w = np.unravel_index(window.argmax(), window.shape)  # the first
                    mask = (max(h0, 0) + h) * size[1] + max(w0, 0) + w
                    y = window[h, w]
                    dx[n, c].flat[mask] += top[0].cpu_diff()[n, c, i, j]
                assert top[0].cpu_data()[n, c, i, j] == dtype(y)
                if tops == 2:
                    assert top[1].cpu_data()[n, c, i, j] == mask
    np.testing.assert_array_equal(bottom.cpu_diff(), dx)


@SMALL
@given(poolings(), st.sampled_from([np.float32, np.float64]))
def test_average(pooling, dtype):
    param, size = pooling
    param.pooling_param.pool = PoolingParameter.AVE
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (1, 2, *size)).astype(dtype)  # sums are exact, the division is rounded once
    bottom, top = run(param, x, dy=lambda shape: rng.normal(size=shape), dtype=dtype)
    rows, columns = spans(param, size)
    dx = np.zeros_like(x)
    with np.errstate(invalid="ignore", divide="ignore"):
        for i, (h0, h1, h2) in enumerate(rows):
            for j, (w0, w1, w2) in enumerate(columns):
                divisor = dtype((h2 - h0) * (w2 - w0))
                window = (slice(None), slice(None), slice(max(h0, 0), h1), slice(max(w0, 0), w1))
                total = x[window].sum(axis=(2, 3))
                np.testing.assert_array_equal(top[0].cpu_data()[:, :, i, j], total / divisor)
                dx[window] += (top[0].cpu_diff()[:, :, i, j] / divisor)[:, :, None, None]
    np.testing.assert_array_equal(bottom.cpu_diff(), dx)


def test_legacy_sizes_are_asked_for_only_if_pooling_is_global():
    param = LayerParameter(type="Pooling")
    param.pooling_param.kernel_size, param.pooling_param.pad = 2, 2
    bottom = [Blob((1, 1, 1, 4, 4))]
    with pytest.raises(CheckError, match=r"pad_h_ < kernel_h_ \(2 vs\. 2\)"):
        create(param).set_up(bottom, [Blob()])
    param.pooling_param.ClearField("kernel_size")
    param.pooling_param.ClearField("pad")
    param.pooling_param.global_pooling = True
    with pytest.raises(CheckError, match=r"num_axes\(\) <= 4 \(5 vs\. 4\)"):
        create(param).set_up(bottom, [Blob()])


def test_nan_never_wins_and_its_gradient_is_dropped():
    param = LayerParameter(type="Pooling")
    param.pooling_param.kernel_size = param.pooling_param.stride = 2
    x = np.full((1, 1, 2, 4), np.nan, np.float32)
    x[0, 0, 1, 3] = -5
    bottom, top = run(param, x, 2, np.ones)
    np.testing.assert_array_equal(top[0].cpu_data(), [[[[-FLT_MAX, -5]]]])
    np.testing.assert_array_equal(top[1].cpu_data(), [[[[-1, 7]]]])
    assert bottom.cpu_diff().sum() == bottom.cpu_diff()[0, 0, 1, 3] == 1


@pytest.mark.parametrize("global_pooling", [False, True])
def test_sizes_follow_the_bottom(global_pooling):
    param = LayerParameter(type="Pooling")
    param.pooling_param.global_pooling = global_pooling
    if not global_pooling:
        param.pooling_param.kernel_size = 3
    made, bottom, top = create(param), [Blob((1, 1, 3, 3))], [Blob()]
    made.set_up(bottom, top)
    bottom[0].reshape(2, 3, 5, 4)
    made.forward(bottom, top)
    assert top[0].shape == ((2, 3, 1, 1) if global_pooling else (2, 3, 3, 2))


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(4, 12), st.integers(4, 12), st.booleans())
def test_spp_is_its_poolings_in_a_row(levels, height, width, average):
    kernels = [(math.ceil(n / 2**level), n, 2**level) for level in range(levels) for n in (height, width)]
    assume(all((k * bins - n + 1) // 2 < k for k, n, bins in kernels))  # others are refused
    param = LayerParameter(type="SPP")
    param.spp_param.pyramid_height = levels
    param.spp_param.pool = int(average)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, height, width)).astype(np.float32)
    bottom, top = run(param, x, dy=np.ones)
    parts, gradient = [], np.zeros_like(x)
    for level in range(levels):
        inner = LayerParameter(type="Pooling")
        pool = inner.pooling_param
        kernel = [math.ceil(n / 2**level) for n in (height, width)]
        pad = [(k * 2**level - n + 1) // 2 for k, n in zip(kernel, (height, width), strict=True)]
        pool.kernel_h, pool.kernel_w, pool.stride_h, pool.stride_w, pool.pad_h, pool.pad_w = (
            *kernel,
            *kernel,
            *pad,
        )
        pool.pool = int(average)
        source, pooled = run(inner, x, dy=np.ones)
        parts.append(pooled[0].cpu_data().reshape(2, -1))
        gradient += source.cpu_diff()
    np.testing.assert_array_equal(top[0].cpu_data().reshape(2, -1), np.concatenate(parts, axis=1))
    np.testing.assert_allclose(bottom.cpu_diff(), gradient, rtol=1e-6)
