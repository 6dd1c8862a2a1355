"""Losses and what judges scores: how they follow from each other, divisors, ignored labels, ties."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.layers.normalization_mode import Normalization
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import write_binary

F = np.float32
seeds = st.integers(0, 999)


class Run:
    """A layer on arrays; ``forward`` gives the first top, ``backward`` the first bottom's gradient."""

    def __init__(self, text: str, *bottoms: Any, dtype: type = np.float64, tops: int = 1) -> None:
        param = text_format.Parse(f"name: 'layer' phase: TRAIN {text}", caffe_pb2.LayerParameter())
        self.layer = create(param, dtype)
        self.bottom = [Blob(np.shape(values), dtype) for values in bottoms]
        self.top = [Blob(dtype=dtype) for _ in range(tops)]
        for blob, values in zip(self.bottom, bottoms, strict=True):
            blob.data[...] = values
        self.layer.set_up(self.bottom, self.top)

    def forward(self) -> Any:
        with np.errstate(all="ignore"):
            self.layer.forward(self.bottom, self.top)
        return self.top[0].data

    def backward(self, *wanted: bool, dy: Any = None) -> Any:
        if dy is not None:
            self.top[0].diff[...] = dy
        self.layer.backward(self.top, [*wanted, *[False] * (len(self.bottom) - len(wanted))], self.bottom)
        return self.bottom[0].diff


def scores_and_labels(seed: int, outer: int = 3, classes: int = 4, inner: int = 2) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal((outer, classes, inner)) * 3, rng.integers(0, classes, (outer, inner))


# --- softmax


@given(seeds, st.integers(-3, 2))
def test_softmax_adds_up_to_one_and_ignores_shifts(seed: int, axis: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2, 3, 4))
    run = Run(f"type: 'Softmax' softmax_param {{ axis: {axis} }}", x)
    y = run.forward()
    np.testing.assert_allclose(y.sum(axis=axis), 1)
    np.testing.assert_allclose(Run(f"type: 'Softmax' softmax_param {{ axis: {axis} }}", x + 700).forward(), y)
    dy = np.random.default_rng(seed + 1).standard_normal(x.shape)
    expected = y * (dy - (dy * y).sum(axis=axis, keepdims=True))
    np.testing.assert_allclose(run.backward(False, dy=dy), expected, atol=1e-15)  # written all the same


@given(seeds)
def test_softmax_with_loss_is_multinomial_loss_of_softmax(seed: int) -> None:
    x, labels = scores_and_labels(seed, inner=1)
    x, labels = x[:, :, 0], labels[:, 0]
    both = Run("type: 'SoftmaxWithLoss'", x, labels)
    softmax = Run("type: 'Softmax'", x)
    loss = Run("type: 'MultinomialLogisticLoss'", softmax.forward(), labels)
    np.testing.assert_allclose(both.forward(), loss.forward())
    np.testing.assert_allclose(both.backward(True), softmax.backward(True, dy=loss.backward(True)), atol=1e-12)


@given(seeds, st.booleans())
def test_infogain_with_the_identity_is_softmax_with_loss(seed: int, ignore: bool) -> None:
    x, labels = scores_and_labels(seed)
    param = "loss_param { ignore_label: 1 }" if ignore else ""
    one = Run(f"type: 'SoftmaxWithLoss' {param}", x, labels)
    other = Run(f"type: 'InfogainLoss' {param}", x, labels, np.eye(4))
    np.testing.assert_allclose(one.forward(), other.forward(), atol=1e-12)
    np.testing.assert_allclose(one.backward(True), other.backward(True), atol=1e-12)


@given(seeds)
def test_infogain_weighs_every_pair_of_classes(seed: int) -> None:
    x, labels = scores_and_labels(seed)
    matrix = np.random.default_rng(seed).standard_normal((4, 4))
    run = Run("type: 'InfogainLoss'", x, labels, matrix)
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    weights = matrix[labels]  # (outer, inner, classes)
    np.testing.assert_allclose(run.forward(), -(weights * np.log(p).swapaxes(1, 2)).sum() / 6)
    expected = p * weights.sum(axis=2)[:, None] - weights.swapaxes(1, 2)
    np.testing.assert_allclose(run.backward(True), expected / 6, atol=1e-12)


def test_infogain_takes_a_matrix_from_a_file(tmp_path: Any) -> None:
    x, labels = scores_and_labels(0)
    matrix = Blob((1, 1, 4, 4), np.float64)
    matrix.data[...] = np.arange(16.0).reshape(4, 4)
    proto = caffe_pb2.BlobProto()
    matrix.to_proto(proto)
    write_binary(proto, tmp_path / "H.binaryproto")
    given_one = Run("type: 'InfogainLoss'", x, labels, matrix.data)
    source = f"infogain_loss_param {{ source: '{tmp_path}/H.binaryproto' }}"
    read_one = Run(f"type: 'InfogainLoss' {source}", x, labels)
    assert read_one.forward() == given_one.forward()
    assert np.array_equal(read_one.backward(True), given_one.backward(True))


# --- divisors and ignored labels


@pytest.mark.parametrize(
    ("param", "divisor"),
    [
        ("", 4),
        ("normalization: VALID", 4),
        ("normalization: FULL", 6),
        ("normalization: BATCH_SIZE", 3),
        ("normalization: NONE", 1),
        ("normalize: true", 4),
        ("normalize: false", 3),
        ("normalize: true normalization: NONE", 1),
    ],
)
def test_divisors(param: str, divisor: int) -> None:
    x, _ = scores_and_labels(1)
    labels = np.array([[0, 1], [2, 2], [3, 0]])
    p = np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    losses = -np.log(np.take_along_axis(p, labels[:, None], 1)[:, 0])[labels != 2]
    run = Run(f"type: 'SoftmaxWithLoss' loss_param {{ ignore_label: 2 {param} }}", x, labels)
    np.testing.assert_allclose(run.forward(), losses.sum() / divisor)
    gradient = (p - (np.arange(4)[None, :, None] == labels[:, None])) * (labels != 2)[:, None] / divisor
    np.testing.assert_allclose(run.backward(True), gradient, atol=1e-12)


def test_divisor_is_at_least_one_and_defaults_differ() -> None:
    modes = caffe_pb2.LossParameter
    assert Normalization(modes(), modes.VALID).divisor(3, 2, 0, F) == 1
    assert Normalization(modes(), modes.BATCH_SIZE).divisor(3, 2, 5, F) == 3
    assert Normalization(modes(normalize=True), modes.BATCH_SIZE).divisor(3, 2, 5, F) == 5


@given(seeds, st.sampled_from([0, 1, -1]))
def test_sigmoid_loss_ignores_by_the_integer_part(seed: int, ignored: int) -> None:
    rng = np.random.default_rng(seed)
    x, target = rng.standard_normal((3, 4)) * 3, rng.uniform(-2, 2, (3, 4))
    counts = np.trunc(target) != ignored
    param = f"loss_param {{ ignore_label: {ignored} normalization: VALID }}"
    run = Run(f"type: 'SigmoidCrossEntropyLoss' {param}", x, target)
    losses = np.logaddexp(0, x) - x * target
    divisor = max(1, counts.sum())
    np.testing.assert_allclose(run.forward(), losses[counts].sum() / divisor, rtol=1e-10, atol=1e-12)
    expected = (1 / (1 + np.exp(-x)) - target) * counts / divisor
    np.testing.assert_allclose(run.backward(True), expected, atol=1e-12)


@pytest.mark.parametrize("layer_type", ["SoftmaxWithLoss", "MultinomialLogisticLoss", "HingeLoss", "Accuracy"])
@pytest.mark.parametrize("label", [-1, 3, np.nan])
def test_labels_out_of_range_are_refused(layer_type: str, label: float) -> None:
    run = Run(f"type: '{layer_type}'", np.ones((2, 3)), [0, label])
    with pytest.raises(CheckError, match=r"Check failed: label_value (>= 0|< .*) \(-?\d+ vs. [03]\)"):
        run.forward()


def test_truncated_and_ignored_labels_are_in_range() -> None:
    x = np.zeros((3, 2))
    run = Run("type: 'SoftmaxWithLoss' loss_param { ignore_label: 255 }", x, [1.9, -0.9, 255])
    np.testing.assert_allclose(run.forward(), np.log(2))
    assert run.backward(True).tolist() == [[0.25, -0.25], [-0.25, 0.25], [0, 0]]


# --- distances and margins


@given(seeds, st.integers(1, 5))
def test_euclidean_gradients_are_opposite(seed: int, num: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((num, 3)), rng.standard_normal((num, 3))
    run = Run("type: 'EuclideanLoss' loss_weight: 2", a, b)
    np.testing.assert_allclose(run.forward(), ((a - b) ** 2).sum() / num / 2)
    np.testing.assert_allclose(run.backward(True, True), 2 * (a - b) / num)
    assert np.array_equal(run.bottom[1].diff, -run.bottom[0].diff)
    assert all(run.layer.allow_force_backward(i) for i in range(2))


@given(seeds, st.sampled_from(["L1", "L2"]))
def test_hinge(seed: int, norm: str) -> None:
    rng = np.random.default_rng(seed)
    x, labels = rng.standard_normal((3, 4)), rng.integers(0, 4, 3)
    signs = np.where(np.arange(4) == labels[:, None], -1, 1)
    margins = np.maximum(0, 1 + signs * x)
    run = Run(f"type: 'HingeLoss' hinge_loss_param {{ norm: {norm} }}", x, labels)
    power = 1 if norm == "L1" else 2
    np.testing.assert_allclose(run.forward(), (margins**power).sum() / 3)
    np.testing.assert_allclose(run.bottom[0].diff, margins)
    slope = np.sign(margins) if norm == "L1" else 2 * margins
    np.testing.assert_allclose(run.backward(True), signs * slope / 3)


@given(seeds, st.booleans())
def test_contrastive(seed: int, legacy: bool) -> None:
    rng = np.random.default_rng(seed)
    a, b, similar = rng.standard_normal((6, 2)), rng.standard_normal((6, 2)), rng.integers(0, 2, 6)
    margin, squares = 1.5, ((a - b) ** 2).sum(axis=1)
    param = f"contrastive_loss_param {{ margin: {margin} legacy_version: {str(legacy).lower()} }}"
    run = Run(f"type: 'ContrastiveLoss' {param}", a, b, similar)
    missing = margin - (squares if legacy else np.sqrt(squares))
    apart = np.maximum(missing, 0) ** (1 if legacy else 2)
    np.testing.assert_allclose(run.forward(), np.where(similar, squares, apart).sum() / 12)
    slope = np.ones(6) if legacy else missing / (np.sqrt(squares) + 1e-4)
    slope = np.where(similar, 1, np.where(missing > 0, -slope, 0))[:, None]
    np.testing.assert_allclose(run.backward(True, True), slope * (a - b) / 6, atol=1e-12)
    np.testing.assert_allclose(run.bottom[1].diff, -run.bottom[0].diff)


@pytest.mark.parametrize("layer_type", ["SoftmaxWithLoss", "MultinomialLogisticLoss", "HingeLoss", "InfogainLoss"])
def test_labels_get_no_gradient(layer_type: str) -> None:
    bottoms = [np.ones((2, 3)) / 3, [0, 1], *([np.eye(3)] if layer_type == "InfogainLoss" else [])]
    run = Run(f"type: '{layer_type}'", *bottoms)
    run.forward()
    assert not run.layer.allow_force_backward(1)
    with pytest.raises(CheckError, match=f"{layer_type} Layer cannot backpropagate to label inputs."):
        run.backward(True, True)


# --- what judges scores

few = st.sampled_from([0.0, -0.0, 1.0, 2.0, -np.inf])  # so that there are ties


@given(st.lists(st.lists(few, min_size=4, max_size=4), min_size=1, max_size=6), st.integers(1, 4), seeds)
def test_accuracy_against_the_rule(rows: list[list[float]], top_k: int, seed: int) -> None:
    labels = np.random.default_rng(seed).integers(0, 4, len(rows))
    param = f"accuracy_param {{ top_k: {top_k} ignore_label: 3 }}"
    run = Run(f"type: 'Accuracy' {param}", rows, labels, dtype=F, tops=2)
    right, counted = np.zeros(4), np.zeros(4)
    for row, label in zip(rows, labels, strict=True):
        if label != 3:
            counted[label] += 1
            right[label] += sum(score >= row[label] for score in row) - 1 < top_k
    total = counted.sum()
    assert run.forward() == (F(right.sum()) / F(total) if total else 0)
    expected = [F(r) / F(c) if c else F(0) for r, c in zip(right, counted, strict=True)]
    assert run.top[1].data.tolist() == expected


@given(st.lists(st.lists(few, min_size=5, max_size=5), min_size=2, max_size=4), st.integers(1, 5))
def test_argmax_sorts_pairs(rows: list[list[float]], top_k: int) -> None:
    best = [sorted(((v, i) for i, v in enumerate(row)), reverse=True)[:top_k] for row in rows]
    values, indices = ([[pair[k] for pair in row] for row in best] for k in (0, 1))
    x = np.array(rows)
    run = Run(f"type: 'ArgMax' argmax_param {{ top_k: {top_k} out_max_val: true }}", x)
    assert run.forward().tolist() == [[i, v] for i, v in zip(indices, values, strict=True)]
    run = Run(f"type: 'ArgMax' argmax_param {{ top_k: {top_k} axis: 0 }}", x.T)
    assert run.forward().T.tolist() == indices
    run = Run(f"type: 'ArgMax' argmax_param {{ top_k: {top_k} axis: -1 out_max_val: true }}", x[:, None])
    assert run.forward()[:, 0].tolist() == values
    with pytest.raises(CheckError, match="Not Implemented Yet"):
        run.backward(True)
