"""Convolution, Deconvolution, Im2col, InnerProduct: against naive sums in double, and their laws."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.kernels.im2col import Columns, col2im, im2col
from refcaffe.layers import create
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import HOST

SMALL = settings(max_examples=25, deadline=None)


@st.composite
def windows(draw):
    """Sizes of an image, and kernel, stride, pad, dilation that have at least one position on it."""
    n = draw(st.integers(1, 3))
    each = st.tuples(*[st.integers(1, 3)] * n)
    kernel, stride, dilation = draw(each), draw(each), draw(each)
    pad = draw(st.tuples(*[st.integers(0, 2)] * n))
    size = tuple(
        max(1, d * (k - 1) + 1 - 2 * p) + draw(st.integers(0, 3)) for k, p, d in zip(kernel, pad, dilation, strict=True)
    )
    grid = tuple(
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(size, kernel, stride, pad, dilation, strict=True)
    )
    return size, grid, kernel, stride, pad, dilation


def seen(window):
    """Every (grid place, kernel place, image place) where a kernel position sees a pixel."""
    size, grid, kernel, stride, pad, dilation = window
    for at in itertools.product(*map(range, grid)):
        for k in itertools.product(*map(range, kernel)):
            place = tuple(a * s - p + i * d for a, s, p, i, d in zip(at, stride, pad, k, dilation, strict=True))
            if all(0 <= p < n for p, n in zip(place, size, strict=True)):
                yield at, k, place


def naive_convolution(x, weight, bias, window, group):
    """For every output the sum over its group's channels and the kernel's places, in double."""
    grid = window[1]
    outputs, inputs = weight.shape[:2]
    y = np.zeros((len(x), outputs, *grid)) + bias.reshape(-1, *[1] * len(grid))
    for at, k, place in seen(window):
        for g in range(group):
            out = slice(g * outputs // group, (g + 1) * outputs // group)
            into = slice(g * inputs, (g + 1) * inputs)
            y[(slice(None), out, *at)] += (
                x[(slice(None), into, *place)] @ weight[(slice(out.start, out.stop), slice(None), *k)].T
            )
    return y


def layer(kind, window, dtype, **fields):
    param = LayerParameter(type=kind)
    _, _, kernel, stride, pad, dilation = window
    conv = param.convolution_param
    conv.kernel_size.extend(kernel)
    conv.stride.extend(stride)
    conv.pad.extend(pad)
    conv.dilation.extend(dilation)
    for name, value in fields.items():
        setattr(conv, name, value)
    conv.weight_filler.type = conv.bias_filler.type = "gaussian"
    return create(param, dtype)


def run(made, x, dy=None, propagate=True):
    """Forward, and backward if there is a ``dy`` or ``dy`` is a function of the top's shape."""
    bottom, top = Blob(x.shape, x.dtype), Blob(dtype=x.dtype)
    made.set_up([bottom], [top])
    bottom.mutable_cpu_data()[...] = x
    made.forward([bottom], [top])
    if dy is not None:
        top.mutable_cpu_diff()[...] = dy(top.shape) if callable(dy) else dy
        made.backward([top], [propagate], [bottom])
    return bottom, top


@SMALL
@given(windows(), st.integers(1, 2), st.integers(1, 2), st.sampled_from([np.float32, np.float64]))
def test_convolution_is_the_naive_sum(window, group, images, dtype):
    rng = np.random.default_rng(0)
    context.current().set_random_seed(1)
    made = layer("Convolution", window, dtype, num_output=2 * group, group=group)
    x = rng.normal(size=(images, 2 * group, *window[0])).astype(dtype)
    _, top = run(made, x)
    weight, bias = (blob.cpu_data().astype(float) for blob in made.blobs)
    expected = naive_convolution(x.astype(float), weight, bias, window, group)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(top.cpu_data(), expected, rtol=tolerance, atol=tolerance * 10)


@SMALL
@given(windows(), st.sampled_from([1, 3]))
def test_gradients_are_the_adjoint_of_forward(window, group):
    """<conv(x; w), dy> is bilinear: its gradients give it back, with x as with w."""
    rng = np.random.default_rng(0)
    context.current().set_random_seed(1)
    made = layer("Convolution", window, np.float64, num_output=group * 2, group=group, bias_term=False)
    x = rng.normal(size=(2, group * 2, *window[0]))
    bottom, top = run(made, x, lambda shape: rng.normal(size=shape))
    total = np.vdot(top.cpu_data(), top.cpu_diff())
    assert np.isclose(np.vdot(x, bottom.cpu_diff()), total)
    assert np.isclose(np.vdot(made.blobs[0].cpu_data(), made.blobs[0].cpu_diff()), total)


@SMALL
@given(windows(), st.sampled_from([1, 2]))
def test_deconvolution_is_convolution_backwards(window, group):
    """With the same weights, one's forward is the other's bottom gradient, and weight gradients agree."""
    _, grid, kernel, stride, pad, dilation = window
    per_axis = zip(grid, kernel, stride, pad, dilation, strict=True)
    assume(all(s * (n - 1) + d * (k - 1) + 1 > 2 * p for n, k, s, p, d in per_axis))
    rng = np.random.default_rng(0)
    context.current().set_random_seed(1)
    deconv = layer("Deconvolution", window, np.float64, num_output=2 * group, group=group, bias_term=False)
    x_grid = rng.normal(size=(2, 4, *grid))
    bottom, top = run(deconv, x_grid, lambda shape: rng.normal(size=shape))
    image = top.cpu_diff()
    covered = (image.shape[2:], *window[1:])
    conv = layer("Convolution", covered, np.float64, num_output=4, group=group, bias_term=False)
    x, y = Blob(image.shape, np.float64), Blob(dtype=np.float64)
    conv.set_up([x], [y])
    assert y.shape == bottom.shape
    conv.blobs[0].copy_from(deconv.blobs[0])
    x.mutable_cpu_data()[...] = image
    conv.forward([x], [y])
    np.testing.assert_allclose(y.cpu_data(), bottom.cpu_diff(), atol=1e-12)
    y.mutable_cpu_diff()[...] = x_grid
    conv.backward([y], [True], [x])
    np.testing.assert_allclose(x.cpu_diff(), top.cpu_data(), atol=1e-12)
    np.testing.assert_allclose(conv.blobs[0].cpu_diff(), deconv.blobs[0].cpu_diff(), atol=1e-12)


@SMALL
@given(windows(), st.integers(1, 3))
def test_columns_hold_what_each_position_sees(window, channels):
    size, grid, kernel, *_ = window
    image = np.random.default_rng(0).normal(size=(channels, *size))
    columns = np.full((channels, *kernel, *grid), np.nan)
    im2col(HOST, Columns(channels, size, grid, *window[2:]), image, columns)
    expected = np.zeros_like(columns)
    for at, k, place in seen(window):
        expected[(slice(None), *k, *at)] = image[(slice(None), *place)]
    np.testing.assert_array_equal(columns, expected)


@SMALL
@given(windows(), st.sampled_from([np.float32, np.float64]))
def test_col2im_is_the_adjoint_of_im2col(window, dtype):
    size, grid, kernel, *_ = window
    rng = np.random.default_rng(0)
    where = Columns(2, size, grid, *window[2:])
    # Small integers: sums are exact.
    image = rng.integers(-8, 8, (2, *size)).astype(dtype)
    columns = rng.integers(-8, 8, (2, *kernel, *grid)).astype(dtype)
    seen_columns, summed = np.empty_like(columns), np.full_like(image, np.nan)
    im2col(HOST, where, image, seen_columns)
    col2im(HOST, where, columns, summed)
    assert np.vdot(seen_columns, columns) == np.vdot(image, summed)


def test_im2col_layer_takes_all_axes_before_its_axis_as_images():
    param = LayerParameter(type="Im2col")
    param.convolution_param.kernel_size.append(2)
    param.convolution_param.axis = 2
    x = np.random.default_rng(0).normal(size=(2, 3, 2, 4, 3)).astype(np.float32)
    bottom, top = run(create(param), x, np.ones((2, 3, 8, 3, 2), np.float32), propagate=False)
    image = x[1, 2, 1]
    np.testing.assert_array_equal(
        top.cpu_data()[1, 2, 4:], [image[i : i + 3, j : j + 2] for i in (0, 1) for j in (0, 1)]
    )
    times_seen = np.outer([1, 2, 2, 1], [1, 2, 1])
    np.testing.assert_array_equal(bottom.cpu_diff(), np.broadcast_to(times_seen, x.shape))


@pytest.mark.parametrize("kind", ["Convolution", "Deconvolution"])
def test_a_point_needs_no_columns(kind):
    made = layer(kind, ((3, 3), (3, 3), (1, 1), (1, 1), (0, 0), (1, 1)), np.float32, num_output=2)
    run(made, np.ones((1, 4, 3, 3), np.float32), np.ones((1, 2, 3, 3), np.float32))
    assert made.columns.memories[0].head.name == "UNINITIALIZED"


def test_a_stride_of_zero_by_omission_is_refused():
    param = LayerParameter(type="Convolution")
    param.convolution_param.num_output = 1
    param.convolution_param.kernel_size.append(1)
    param.convolution_param.stride_h = 1
    with pytest.raises(CheckError, match="Stride dimensions must be nonzero"):
        create(param).set_up([Blob((1, 1, 3, 3))], [Blob()])


def test_an_output_without_elements_is_refused_where_upstream_has_no_memory_for_it():
    made = layer(
        "Convolution",
        ((2, 2), (0, 0), (3, 3), (1, 1), (0, 0), (1, 1)),
        np.float32,
        num_output=1,
        bias_term=False,
    )
    bottom, top = Blob((1, 1, 2, 2)), Blob()
    made.set_up([bottom], [top])
    assert top.shape == (1, 1, 0, 0)
    with pytest.raises(CheckError, match="Check failed: data_"):
        made.forward([bottom], [top])


@SMALL
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
    st.booleans(),
    st.integers(1, 300),
    st.booleans(),
)
def test_inner_product_is_a_matrix_product(shape, data, transpose, outputs, negative):
    axis = data.draw(st.integers(0, len(shape) - 1))
    param = LayerParameter(type="InnerProduct")
    inner = param.inner_product_param
    inner.num_output, inner.transpose = outputs, transpose
    inner.axis = axis - len(shape) if negative else axis
    inner.weight_filler.type = inner.bias_filler.type = "gaussian"
    made = create(param, np.float64)
    rng = np.random.default_rng(0)
    x = rng.normal(size=shape)
    bottom, top = run(made, x, lambda shape: rng.normal(size=shape))
    weight, bias = (blob.cpu_data() for blob in made.blobs)
    weight = weight.T if transpose else weight
    rows, dy = x.reshape(int(np.prod(shape[:axis])), -1), top.cpu_diff().reshape(-1, outputs)
    np.testing.assert_allclose(top.cpu_data().reshape(-1, outputs), rows @ weight.T + bias, atol=1e-12)
    np.testing.assert_allclose(bottom.cpu_diff().reshape(rows.shape), dy @ weight, atol=1e-12)
    weight_diff = dy.T @ rows
    np.testing.assert_allclose(made.blobs[0].cpu_diff(), weight_diff.T if transpose else weight_diff, atol=1e-12)
    np.testing.assert_allclose(made.blobs[1].cpu_diff(), dy.sum(axis=0), atol=1e-12)


def test_large_weight_diffs_are_added_block_by_block():
    param = LayerParameter(type="InnerProduct")
    param.inner_product_param.num_output = 700
    made = create(param)
    rng = np.random.default_rng(0)
    x, dy = (rng.integers(-4, 5, (3, n)).astype(np.float32) for n in (1500, 700))
    bottom, top = run(made, x, dy)
    made.backward([top], [False], [bottom])
    np.testing.assert_array_equal(made.blobs[0].cpu_diff(), 2 * dy.T @ x)
