"""LRN, MVN, BatchNorm, Scale, Bias, Reduction, Embed: against plain formulas in double, and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.proto.caffe_pb2 import LayerParameter, ReductionParameter

SMALL = settings(max_examples=25, deadline=None)
SHAPES = st.lists(st.integers(1, 4), min_size=4, max_size=4)


class Run:
    """A layer with its blobs. ``data``: of each bottom; ``in_place``: the top is the first bottom."""

    def __init__(self, text, *data, in_place=False):
        dtype = data[0].dtype
        self.layer = create(text_format.Parse(text, LayerParameter()), dtype)
        self.bottom = [Blob(array.shape, dtype) for array in data]
        self.top = self.bottom[:1] if in_place else [Blob(dtype=dtype)]
        self.layer.set_up(self.bottom, self.top)
        for blob, array in zip(self.bottom, data, strict=True):
            blob.mutable_cpu_data()[...] = array
        self.y = self.forward()

    def forward(self):
        self.layer.forward(self.bottom, self.top)
        return self.top[0].cpu_data().copy()

    def backward(self, dy):
        """The bottoms' gradients."""
        self.top[0].mutable_cpu_diff()[...] = dy
        self.layer.backward(self.top, [True] * len(self.bottom), self.bottom)
        return [blob.cpu_diff().copy() for blob in self.bottom]

    def numeric(self, dy, step=1e-6):
        """What the first bottom's gradient should be, by differences; not in place."""
        x = self.bottom[0].mutable_cpu_data().reshape(-1)
        gradient = np.empty(x.size)
        for i, value in enumerate(x.copy()):
            ends = []
            for x[i] in (value + step, value - step):
                ends.append(np.vdot(self.forward(), dy))
            gradient[i] = (ends[0] - ends[1]) / (2 * step)
            x[i] = value
        self.forward()
        return gradient.reshape(self.bottom[0].shape)


def normal(shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


# --- LRN


@SMALL
@given(SHAPES, st.sampled_from([1, 3, 5, 9]), st.sampled_from([np.float32, np.float64]))
def test_lrn_across_channels(shape, size, dtype):
    x = normal(shape, dtype=dtype)
    run = Run(f'type: "LRN" lrn_param {{ local_size: {size} alpha: 0.5 beta: 0.75 k: 2 }}', x)
    pad = np.zeros((shape[0], size // 2, *shape[2:]))
    squares = np.concatenate([pad, x.astype(float) ** 2, pad], axis=1)
    scale = 2 + 0.5 / size * sum(squares[:, i : i + shape[1]] for i in range(size))
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(run.y, x * scale**-0.75, rtol=tolerance)


@pytest.mark.parametrize("region", ["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn_gradient(region, size):
    text = f'type: "LRN" lrn_param {{ local_size: {size} alpha: 0.7 beta: 0.6 k: 1 norm_region: {region} }}'
    run = Run(text, normal((2, 4, 3, 3)))
    dy = normal((2, 4, 3, 3), 1)
    np.testing.assert_allclose(run.backward(dy)[0], run.numeric(dy), atol=1e-7)


def test_lrn_without_alpha_does_not_look_at_its_neighbours():
    run = Run('type: "LRN" lrn_param { alpha: 0 k: 4 beta: 0.5 }', np.full((1, 2, 1, 1), np.inf, np.float32))
    assert (run.y == np.inf).all()


# --- MVN


@SMALL
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_mvn(shape, across, variance):
    text = f"across_channels: {across} normalize_variance: {variance} eps: 0.25".lower()
    x = normal(shape)
    run = Run(f'type: "MVN" mvn_param {{ {text} }}', x)
    shape = (*shape, 1, 1, 1)[:4]
    assert run.y.shape == shape
    axes = (1, 2, 3) if across else (2, 3)
    x = x.reshape(shape)
    expected = x - x.mean(axis=axes, keepdims=True)
    if variance:
        expected /= x.std(axis=axes, keepdims=True) + 0.25
    np.testing.assert_allclose(run.y, expected, atol=1e-12)


@pytest.mark.parametrize("text", ["", "across_channels: true", "normalize_variance: false"])
def test_mvn_gradient(text):
    run = Run(f'type: "MVN" mvn_param {{ {text} eps: 1e-12 }}', normal((2, 3, 2, 3)))
    dy = normal((2, 3, 2, 3), 1)
    np.testing.assert_allclose(run.backward(dy)[0], run.numeric(dy), atol=1e-6)


# --- BatchNorm


@SMALL
@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.booleans())
def test_batch_norm_and_its_running_statistics(shape, in_place):
    x = normal(shape)
    text = 'type: "BatchNorm" batch_norm_param { moving_average_fraction: 0.5 eps: 0.01 }'
    run = Run(text, x, in_place=in_place)
    axes = (0, *range(2, x.ndim))
    mean, variance = (f(axis=axes, keepdims=True) for f in (x.mean, x.var))
    np.testing.assert_allclose(run.y, (x - mean) / np.sqrt(variance + 0.01), atol=1e-12)
    values = x.size // x.shape[1]
    unbiased = values / (values - 1) if values > 1 else 1
    means, variances, weight = (blob.cpu_data() for blob in run.layer.blobs)
    assert weight == 1
    np.testing.assert_allclose(means, mean.reshape(-1))
    np.testing.assert_allclose(variances, variance.reshape(-1) * unbiased, atol=1e-15)
    if not in_place:
        run.forward()
        assert weight == 1.5
        np.testing.assert_allclose(means, 1.5 * mean.reshape(-1))


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("running", [False, True])
def test_batch_norm_gradient(running, in_place):
    text = f'type: "BatchNorm" batch_norm_param {{ use_global_stats: {running} }}'.lower()
    x, dy = normal((3, 2, 2, 2)), normal((3, 2, 2, 2), 1)
    run = Run(text.replace("batchnorm", "BatchNorm"), x, in_place=in_place)
    expected = Run(text.replace("batchnorm", "BatchNorm"), x).numeric(dy)
    np.testing.assert_allclose(run.backward(dy)[0], expected, atol=1e-5, rtol=1e-5)


def test_batch_norm_parameters_do_not_learn():
    run = Run('type: "BatchNorm"', normal((2, 3)))
    assert [param.lr_mult for param in run.layer.param.param] == [0, 0, 0]


@pytest.mark.parametrize("kind", ["BatchNorm", "MVN"])
def test_empty_blobs_are_refused(kind):
    with pytest.raises(CheckError, match="An empty blob has no mean"):
        Run(f'type: "{kind}"', np.empty((0, 2, 3, 3), np.float32))


# --- Scale and Bias


@st.composite
def spans(draw):
    """A shape, a first axis and a number of axes (0: a scalar)."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    axis = draw(st.integers(0, len(shape) - 1))
    return shape, axis, draw(st.integers(0, len(shape) - axis))


def spread(array, shape, axis):
    """An array along axes from ``axis`` on, so that it broadcasts over ``shape``."""
    return array.reshape(*[1] * axis, *array.shape, *[1] * (len(shape) - axis - array.ndim))


def summed(array, axis, axes):
    """The sum over all axes but those."""
    outside = tuple(i for i in range(array.ndim) if not axis <= i < axis + axes)
    return array.sum(axis=outside)


@SMALL
@given(spans(), st.booleans(), st.booleans(), st.sampled_from(["Scale", "Bias"]))
def test_scale_and_bias(span, learned, in_place, kind):
    shape, axis, axes = span
    axis = axis if axes else 0
    x, other, dy = normal(shape), normal(shape[axis : axis + axes], 1), normal(shape, 2)
    text = f'type: "{kind}" {kind.lower()}_param {{ axis: {axis} num_axes: {axes} }}'
    run = Run(text, x, *([] if learned else [other]), in_place=in_place)
    blob = run.layer.blobs[0] if learned else run.bottom[1]
    blob.mutable_cpu_data()[...] = other
    run.bottom[0].mutable_cpu_data()[...] = x
    wide = spread(other, shape, axis)
    np.testing.assert_array_equal(run.forward(), x * wide if kind == "Scale" else x + wide)
    gradient = run.backward(dy)[0]
    np.testing.assert_array_equal(gradient, dy * wide if kind == "Scale" else dy)
    expected = summed(dy * x if kind == "Scale" else dy, axis, axes)
    np.testing.assert_allclose(blob.cpu_diff(), expected, atol=1e-12)


@pytest.mark.parametrize(
    ("shape", "axes", "adds"),
    [((2, 3, 2), 1, True), ((1, 3, 2), 1, False), ((1, 3, 2), 2, False), ((2, 3, 2), 0, True), ((1, 1, 2), 1, True)],
)
def test_when_the_diff_of_a_scale_is_set_not_added_to(shape, axes, adds):
    x = normal(shape)
    run = Run(f'type: "Scale" scale_param {{ num_axes: {axes} }}', x)
    run.backward(x)
    once = run.layer.blobs[0].cpu_diff().copy()
    run.backward(x)
    np.testing.assert_allclose(run.layer.blobs[0].cpu_diff(), (2 if adds else 1) * once)


def test_scaling_by_zero_gives_plus_zero():
    x = np.array([[np.nan, np.inf, -1], [1, 2, 3]], np.float32)
    run = Run(
        'type: "Scale" scale_param { axis: 0 }', x, np.array([0, -0.0, 2], np.float32)[None].repeat(2, axis=0).copy()
    )
    for result in (run.y[:, :2], run.backward(x)[0][:, :2]):
        assert (result == 0).all()
        assert not np.signbit(result).any()


def test_scale_shares_its_last_parameter_with_the_bias_inside():
    context.current().set_random_seed(1)
    run = Run('type: "Scale" scale_param { bias_term: true bias_filler { type: "gaussian" } }', normal((2, 3)))
    scale, bias = run.layer.blobs
    np.testing.assert_array_equal(scale.cpu_data(), 1)
    assert bias.cpu_data().any()
    np.testing.assert_array_equal(run.y, run.bottom[0].cpu_data() + bias.cpu_data())
    dy = normal((2, 3), 1)
    run.backward(dy)
    np.testing.assert_allclose(bias.cpu_diff(), dy.sum(axis=0))


# --- Reduction


@SMALL
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
    st.sampled_from(["SUM", "ASUM", "SUMSQ", "MEAN"]),
    st.sampled_from([1, -2, 0.5]),
)
def test_reduction(shape, data, name, coeff):
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = normal(shape)
    operation = ReductionParameter.ReductionOp.Value(name)
    text = f'type: "Reduction" reduction_param {{ operation: {operation} axis: {axis} coeff: {coeff} }}'
    run = Run(text, x)
    first = axis % len(shape)
    flat = x.reshape(*shape[:first], -1)
    formula = {"SUM": flat, "ASUM": abs(flat), "SUMSQ": flat**2, "MEAN": flat / flat.shape[-1]}[name]
    np.testing.assert_allclose(run.y, coeff * formula.sum(axis=-1), atol=1e-12)
    dy = normal(run.y.shape, 1)
    np.testing.assert_allclose(run.backward(dy)[0], run.numeric(dy), atol=1e-7)


# --- Embed


@SMALL
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.booleans())
def test_embed(indices, bias):
    context.current().set_random_seed(1)
    filler = '{ type: "gaussian" }'
    text = f"num_output: 3 input_dim: 5 bias_term: {bias} weight_filler {filler} bias_filler {filler}".lower()
    index = np.array(indices, np.float64) + 0.5  # truncated
    run = Run(f'type: "Embed" embed_param {{ {text} }}', index)
    weight = run.layer.blobs[0].cpu_data()
    added = run.layer.blobs[1].cpu_data() if bias else 0
    np.testing.assert_array_equal(run.y, weight[indices] + added)
    dy = normal((len(indices), 3))
    run.top[0].mutable_cpu_diff()[...] = dy
    run.layer.backward(run.top, [False], run.bottom)
    expected = np.zeros((5, 3))
    for n, i in enumerate(indices):
        expected[i] += dy[n]
    np.testing.assert_array_equal(run.layer.blobs[0].cpu_diff(), expected)
    if bias:
        np.testing.assert_allclose(run.layer.blobs[1].cpu_diff(), dy.sum(axis=0), atol=1e-12)


@pytest.mark.parametrize(
    ("index", "message"), [(-1, r"index >= 0 \(-1 vs. 0\)"), (2, r"index < K_ \(2 vs. 2\)"), (np.nan, "index >= 0")]
)
def test_embed_refuses_indices_outside_of_its_table(index, message):
    with pytest.raises(CheckError, match=message):
        Run('type: "Embed" embed_param { num_output: 1 input_dim: 2 }', np.array([0, index], np.float32))


def test_a_debug_build_wants_whole_indices():
    with context.build(debug=True), pytest.raises(CheckError, match="non-integer input"):
        Run('type: "Embed" embed_param { num_output: 1 input_dim: 2 }', np.array([0.5], np.float32))
