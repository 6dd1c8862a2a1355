"""Elementwise layers: each against the rule written out for one number, and laws that hold for all shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.kernels.tanh import tanh_float
from refcaffe.layers import create
from refcaffe.layers.blocks import BLOCK, blocks, row_blocks
from refcaffe.layers.sums import choose, in_order, keep, parts, scale, scaled
from refcaffe.proto import caffe_pb2
from refcaffe.side import DEVICE, HOST

F = np.float32
floats = st.floats(width=32)
numbers = st.lists(floats, min_size=1, max_size=40)
shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)
factors = st.sampled_from([0.0, 0.25, -0.5, 1.0, 2.0])


class Run:
    """A layer on arrays: ``y`` after forward, ``dx`` (of each bottom) after backward."""

    def __init__(self, text: str, *bottoms: Any, dtype: type = F, tops: int = 1, in_place: bool = False) -> None:
        param = text_format.Parse(f"name: 'layer' {text}", caffe_pb2.LayerParameter())
        self.layer = create(param, dtype)
        self.bottom = [Blob(np.shape(values), dtype) for values in bottoms]
        for blob, values in zip(self.bottom, bottoms, strict=True):
            blob.data[...] = values
        self.top = self.bottom[:1] if in_place else [Blob(dtype=dtype) for _ in range(tops)]
        self.layer.set_up(self.bottom, self.top)

    def forward(self) -> Any:
        with np.errstate(all="ignore"):
            self.layer.forward(self.bottom, self.top)
        return self.top[0].data

    def backward(self, *dy: Any) -> list[Any]:
        for blob, values in zip(self.top, dy, strict=True):
            blob.diff[...] = values
        with np.errstate(all="ignore"):
            self.layer.backward(self.top, [True] * len(self.bottom), self.bottom)
        return [blob.diff for blob in self.bottom]


def same_bits(a: Any, b: Any) -> bool:
    """NaNs are all alike, zeros are not."""
    a, b = np.asarray(a, F), np.asarray(b, F)
    return bool(np.all((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))))


def each(rule: Callable[..., Any], *columns: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.array([rule(*map(F, row)) for row in zip(*columns, strict=True)], F)


def larger(a: Any, b: Any) -> Any:
    return b if a < b else a


def smaller(a: Any, b: Any) -> Any:
    return b if b < a else a


ZERO, ONE = F(0), F(1)


# --- the rule for one number


@given(numbers, factors)
def test_relu(x: list[float], slope: float) -> None:
    run = Run(f"type: 'ReLU' relu_param {{ negative_slope: {slope} }}", x)
    assert same_bits(run.forward(), each(lambda v: larger(v, ZERO) + F(slope) * smaller(v, ZERO), x))
    dy = np.linspace(-2, 2, len(x), dtype=F)
    expected = each(lambda v, d: d * (F(v > 0) + F(slope) * F(v <= 0)), x, dy)
    assert same_bits(run.backward(dy)[0], expected)


@given(numbers, st.lists(factors, min_size=2, max_size=2))
def test_clip(x: list[float], bounds: list[float]) -> None:
    low, high = map(F, bounds)
    run = Run(f"type: 'Clip' clip_param {{ min: {low} max: {high} }}", x)
    assert same_bits(run.forward(), each(lambda v: larger(low, smaller(v, high)), x))
    assert same_bits(run.backward(np.ones(len(x)))[0], each(lambda v: F(low <= v <= high), x))


@given(numbers)
def test_abs_val_and_threshold(x: list[float]) -> None:
    run = Run("type: 'AbsVal'", x)
    assert same_bits(run.forward(), each(abs, x))
    assert np.array_equal(run.backward(np.ones(len(x)))[0], each(lambda v: F(int(v > 0) - int(v < 0)), x))
    threshold = Run("type: 'Threshold' threshold_param { threshold: 0.5 }", x)
    assert same_bits(threshold.forward(), each(lambda v: F(v > F(0.5)), x))


@given(st.lists(st.tuples(floats, floats, floats), min_size=1, max_size=30))
def test_eltwise_max_and_who_won(rows: list[tuple[float, float, float]]) -> None:
    columns = [np.array(column, F) for column in zip(*rows, strict=True)]

    def winner(*row: Any) -> int:
        best = 0 if row[0] > row[1] else 1
        return 2 if row[2] > row[best] else best

    won = [winner(*row) for row in zip(*columns, strict=True)]
    run = Run("type: 'Eltwise' eltwise_param { operation: MAX }", *columns)
    assert same_bits(run.forward(), [columns[i][n] for n, i in enumerate(won)])
    dy = np.full(len(rows), np.inf, F)
    for i, dx in enumerate(run.backward(dy)):
        assert same_bits(dx, np.where(np.equal(won, i), dy, 0))


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=30), factors, factors)
def test_eltwise_sum(rows: list[tuple[float, float]], p: float, q: float) -> None:
    a, b = (np.array(column, F) for column in zip(*rows, strict=True))
    run = Run(f"type: 'Eltwise' eltwise_param {{ coeff: {p} coeff: {q} }}", a, b)

    def total(v: Any, w: Any) -> Any:  # what has the coefficient 0 is not looked at
        first = ZERO + F(p) * v if p else ZERO
        return first + F(q) * w if q else first

    assert same_bits(run.forward(), each(total, a, b))


@given(st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=30))
def test_functions_are_rounded_once(x: list[float]) -> None:
    exact = np.array(x, F).astype(np.float64)
    assert same_bits(Run("type: 'Exp' exp_param { scale: 0.5 }", x).forward(), np.exp(0.5 * exact).astype(F))
    assert same_bits(Run("type: 'Sigmoid'", x).forward(), (0.5 * np.tanh(0.5 * exact) + 0.5).astype(F))
    log = Run("type: 'Log' log_param { shift: 128 }", x).forward()
    assert same_bits(log, np.log((exact.astype(F) + F(128)).astype(np.float64)).astype(F))
    e = np.exp(-np.abs(exact)).astype(F).astype(np.float64)
    bnll = np.log(1 + e) + np.maximum(exact, 0)
    assert same_bits(Run("type: 'BNLL'", x).forward(), bnll.astype(F))


def test_tanh_is_odd_saturates_and_is_near() -> None:
    x = np.concatenate([np.linspace(-25, 25, 20001), np.geomspace(1e-30, 1, 2000)]).astype(F)
    y = Run("type: 'TanH'", x).forward()
    assert same_bits(Run("type: 'TanH'", -x).forward(), -y)
    assert (np.abs(y - np.tanh(x.astype(np.float64))) <= 2.5 * np.spacing(np.abs(y))).all()
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 30], F)
    tanh_float(special, special)
    assert same_bits(special, [0.0, -0.0, 1, -1, np.nan, 1])


# glibc 2.36's values where they are one unit off the nearest.
@pytest.mark.parametrize(("x", "y"), [(0.125, "0x1.fd5994p-4"), (0.375, "0x1.6ef53cp-2"), (0.4375, "0x1.a572a0p-2")])
def test_tanh_is_glibc(x: float, y: str) -> None:
    assert Run("type: 'TanH'", [x]).forward()[0] == F(float.fromhex(y))


@pytest.mark.parametrize(
    ("param", "rule", "slope"),
    [
        ("", lambda x: x, lambda x: 1 + 0 * x),
        ("scale: -1.5 shift: 0.25", lambda x: -1.5 * x + 0.25, lambda x: -1.5 + 0 * x),
        ("power: 2 scale: 3 shift: 1", lambda x: (3 * x + 1) ** 2, lambda x: 6 * (3 * x + 1)),
        ("power: 2", lambda x: x**2, lambda x: 2 * x),
        ("power: 3", lambda x: x**3, lambda x: 3 * x**2),
        ("power: 0.5 scale: 2 shift: 9", lambda x: (2 * x + 9) ** 0.5, lambda x: (2 * x + 9) ** -0.5),
        ("power: 0", lambda x: 1 + 0 * x, lambda x: 0 * x),
        ("power: 3 scale: 0 shift: -2", lambda x: -8 + 0 * x, lambda x: 0 * x),
    ],
)
def test_power(param: str, rule: Callable[[Any], Any], slope: Callable[[Any], Any]) -> None:
    x = np.array([-2.5, -1, 0.5, 3])
    run = Run(f"type: 'Power' power_param {{ {param} }}", x, dtype=np.float64)
    np.testing.assert_allclose(run.forward(), rule(x), rtol=1e-14)
    np.testing.assert_allclose(run.backward(np.full(4, 2.0))[0], 2 * slope(x), rtol=1e-13)


@given(st.floats(0.1, 20).filter(lambda base: abs(base - 1) > 0.05), st.floats(-2, 2))
def test_log_undoes_exp(base: float, shift: float) -> None:
    x = np.linspace(-2, 2, 9)
    y = Run(f"type: 'Exp' exp_param {{ base: {base} shift: {shift} }}", x, dtype=np.float64).forward()
    again = Run(f"type: 'Log' log_param {{ base: {base} }}", y, dtype=np.float64).forward()
    np.testing.assert_allclose(again, x + np.float64(F(shift)), atol=1e-6)


# --- laws

IN_PLACE = ["ReLU", "Sigmoid", "TanH", "Exp", "ELU", "Swish", "PReLU", "Softmax"]


@given(st.sampled_from(IN_PLACE), shapes, st.integers(0, 99))
def test_in_place_gives_the_same(layer_type: str, shape: tuple[int, ...], seed: int) -> None:
    shape = (2, *shape)[:4]
    rng = np.random.default_rng(seed)
    x, dy = rng.standard_normal(shape).astype(F), rng.standard_normal(shape).astype(F)
    apart, here = (Run(f"type: '{layer_type}'", x, in_place=in_place) for in_place in (False, True))
    for run in (apart, here):
        run.layer.set_param_propagate_down(0, True)
    assert same_bits(apart.forward(), here.forward())
    assert same_bits(apart.backward(dy)[0], here.backward(dy)[0])


@given(st.integers(0, 3 * BLOCK), st.sampled_from([1, 3, 50_000]))
@settings(max_examples=20)
def test_blocks_cover_everything_once(size: int, row: int) -> None:
    flat = np.zeros(size)
    for (part,) in blocks(HOST, flat):
        assert part.size <= BLOCK
        part += 1
    rows = np.zeros((size // row, row))
    for a, b in row_blocks(HOST, rows, np.empty(len(rows))):
        assert len(a) == len(b)
        a += 1
    assert (flat == 1).all()
    assert (rows == 1).all()
    assert len(list(blocks(DEVICE, flat))) == min(size, 1)


@given(numbers, st.data())
def test_arithmetic_without_branches(values: list[float], data: st.DataObject) -> None:
    x, n = np.array(values, F), len(values)
    where = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    other = x[::-1].copy()
    assert same_bits(keep(x, where), np.where(where, x, ZERO))
    expected = np.where(where, x, other)
    choose(where, x, other, other)
    assert same_bits(other, expected)
    high, low = parts(x)
    assert same_bits(high, each(lambda v: larger(v, ZERO), x))
    assert same_bits(low, each(lambda v: smaller(v, ZERO), x))


@given(st.lists(st.floats(-1e6, 1e6, width=32), max_size=50), st.floats(-10, 10, width=32))
def test_sums_in_order(values: list[float], start: float) -> None:
    total = F(start)
    for value in values:
        total += F(value)
    assert same_bits(in_order(np, F(start), np.array(values, F)), total)


def test_blas_scaling_by_zero() -> None:
    x, out = np.array([np.nan, -np.inf, -1], F), np.ones(3, F)
    scaled(np, F(0), x, out)
    assert same_bits(out, [0, 0, 0])
    scaled(np, F(1), np.array([-0.0, 2, -3], F), out)
    assert same_bits(out, [0, 2, -3])
    scale(x, F(0))
    assert same_bits(x, [0, 0, 0])


@given(st.booleans(), st.integers(1, 4), st.integers(1, 5), st.integers(1, 6))
def test_prelu_adds_slopes_in_order(shared: bool, images: int, channels: int, pixels: int) -> None:
    rng = np.random.default_rng(images)
    x, dy = (rng.standard_normal((images, channels, pixels)).astype(F) for _ in range(2))
    run = Run(f"type: 'PReLU' prelu_param {{ channel_shared: {str(shared).lower()} }}", x)
    run.layer.set_param_propagate_down(0, True)
    run.forward()
    sums = np.full(1 if shared else channels, 0.5, F)
    run.layer.blobs[0].diff[...] = sums.reshape(run.layer.blobs[0].shape)
    run.backward(dy)
    for n, c, i in np.ndindex(x.shape):
        sums[0 if shared else c] += dy[n, c, i] * x[n, c, i] * F(x[n, c, i] <= 0)
    assert same_bits(run.layer.blobs[0].diff.reshape(-1), sums)


@given(shapes, st.floats(0.0625, 0.9375, width=32), st.booleans())
def test_dropout(shape: tuple[int, ...], ratio: float, in_place: bool) -> None:
    x = np.arange(1, math.prod(shape) + 1, dtype=F).reshape(shape)
    text = f"type: 'Dropout' phase: TRAIN dropout_param {{ dropout_ratio: {ratio} }}"
    context.current().set_random_seed(7)
    run = Run(text, x, in_place=in_place)
    before = context.current().stream.draws
    y = run.forward().copy()
    assert context.current().stream.draws == before + x.size
    kept = F(1 / (1 - float(F(ratio))))
    assert ((y == 0) | (y == x * kept)).all()
    assert np.array_equal(run.backward(np.ones(shape))[0], np.where(y == 0, ZERO, kept))
    test = Run(text.replace("TRAIN", "TEST"), x)
    assert np.array_equal(test.forward(), x)
    assert np.array_equal(test.backward(x)[0], x)


@given(shapes, st.integers(1, 4))
def test_split_shares_data_and_adds_diffs(shape: tuple[int, ...], tops: int) -> None:
    x = np.random.default_rng(0).integers(-9, 9, shape)
    run = Run("type: 'Split'", x, tops=tops)
    run.forward()
    assert all(np.shares_memory(blob.data, run.bottom[0].data) for blob in run.top)
    assert np.array_equal(run.backward(*(x + i for i in range(tops)))[0], sum(x + i for i in range(tops)))


def test_silence_writes_zeros() -> None:
    run = Run("type: 'Silence'", [1, 2], [3], tops=0)
    run.layer.forward(run.bottom, [])
    run.bottom[0].diff[...] = 5
    assert [dx.tolist() for dx in run.backward()] == [[0, 0], [0]]


# --- refusals


@pytest.mark.parametrize("layer_type", ["ReLU", "Sigmoid", "TanH", "Softmax"])
def test_cudnn_is_refused(layer_type: str) -> None:
    with pytest.raises(CheckError, match=r"Layer layer has unknown engine\.") as error:
        Run(f"type: '{layer_type}' {layer_type.lower()}_param {{ engine: CUDNN }}", [1.0])
    assert error.value.file == "layer_factory.cpp"


def test_inner_sigmoid_does_not_look_at_the_engine() -> None:
    assert Run("type: 'Swish' sigmoid_param { engine: CUDNN }", [0.0]).forward()[0] == 0


@pytest.mark.parametrize("layer_type", ["AbsVal", "Exp", "Log", "Swish", "Softmax"])
def test_empty_blobs_are_refused_where_upstream_does(layer_type: str) -> None:
    run = Run(f"type: '{layer_type}'", np.ones((2, 3)))
    run.bottom[0].reshape(0, 3)
    with pytest.raises(CheckError) as error:
        run.forward()
    assert error.value.message == "Check failed: n > 0 (0 vs. 0) "


@pytest.mark.parametrize("layer_type", ["ReLU", "Clip", "ELU", "Sigmoid", "TanH", "BNLL", "PReLU"])
def test_empty_blobs_are_nothing_elsewhere(layer_type: str) -> None:
    run = Run(f"type: '{layer_type}'", np.ones((2, 3, 4)))
    run.layer.set_param_propagate_down(0, True)
    run.bottom[0].reshape(0, 3, 4)
    assert run.forward().shape == run.backward(0)[0].shape == (0, 3, 4)


def test_threshold_has_no_gradient() -> None:
    run = Run("type: 'Threshold'", [1.0])
    run.forward()
    with pytest.raises(CheckError, match="Not Implemented Yet"):
        run.backward(1)
