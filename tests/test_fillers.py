"""Fillers: values, statistics, draws, and the order of checks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.fillers import fill, get_filler
from refcaffe.proto import caffe_pb2
from refcaffe.rng import Stream

REALS = (np.float32, np.float64)
FAN_IN, FAN_OUT, AVERAGE = range(3)
SPARSITY = "this->filler_param_.sparse() == -1 ({} vs. -1) Sparsity not supported by this Filler."
shapes = st.lists(st.integers(1, 6), min_size=1, max_size=4)


def filled(shape: Any, real: Any = np.float32, stream: Stream | None = None, **param: Any) -> np.ndarray:
    blob = Blob(shape, real)
    fill(blob, caffe_pb2.FillerParameter(**param), stream or Stream(1))
    return blob.cpu_data().copy()


def refusal(blob: Blob, stream: Stream | None = None, **param: Any) -> str:
    with pytest.raises(CheckError) as caught:
        fill(blob, caffe_pb2.FillerParameter(**param), stream or Stream(1))
    return caught.value.message


@pytest.mark.parametrize("real", REALS)
def test_constant_draws_nothing(real: Any) -> None:
    stream = Stream(1)
    assert (filled((2, 3), real, stream, value=0.1) == real(np.float32(0.1))).all()
    assert (filled((), real, stream) == 0).all()
    assert stream.draws == 0


@pytest.mark.parametrize("real", REALS)
@given(shape=shapes)
@settings(deadline=None, max_examples=20)
def test_plain_draws_are_those_of_the_stream(real: Any, shape: list[int]) -> None:
    n = int(np.prod(shape))
    stream, other, wanted = Stream(4), Stream(4), np.empty(n, real)
    got = filled(shape, real, stream, type="uniform", min=-0.1, max=0.3)
    other.uniform(n, np.float32(-0.1), np.float32(0.3), wanted)
    assert got.dtype == real and got.shape == tuple(shape) and got.tobytes() == wanted.tobytes()
    got = filled(shape, real, stream, type="gaussian", mean=0.1, std=0.3)
    other.gaussian(n, np.float32(0.1), np.float32(0.3), wanted)
    assert got.tobytes() == wanted.tobytes()
    assert stream.draws == other.draws


@given(shape=shapes, sparse=st.integers(0, 6))
@settings(deadline=None, max_examples=40)
def test_sparse_gaussian_masks_what_was_drawn(shape: list[int], sparse: int) -> None:
    sparse = min(sparse, shape[0])
    stream, plain = Stream(5), Stream(5)
    got = filled(shape, stream=stream, type="gaussian", sparse=sparse)
    dense = filled(shape, stream=plain, type="gaussian")
    assert stream.draws - plain.draws == (dense.size if sparse else 0)
    assert ((got == dense) | (got == 0)).all()
    assert np.array_equal(np.signbit(got), np.signbit(dense))
    assert sparse != shape[0] or (got == dense).all()


def test_sparse_keeps_its_share() -> None:
    assert np.mean(filled((40, 5000), type="gaussian", sparse=3) != 0) == pytest.approx(3 / 40, rel=0.05)


@pytest.mark.parametrize("real", REALS)
def test_positive_unitball(real: Any) -> None:
    got = filled((4, 50, 7), real, type="positive_unitball")
    assert (got >= 0).all() and got.sum((1, 2)) == pytest.approx(np.ones(4), rel=1e-5)
    drawn = np.empty(got.size, real)
    Stream(1).uniform(got.size, 0, 1, drawn)
    total = real(0)
    for value in drawn[:350]:
        total += value
    assert np.array_equal(got[0].ravel(), drawn[:350] / total)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize(
    "shape, norm, n",
    [
        ((6, 10, 3, 3), FAN_IN, 90),
        ((6, 10, 3, 3), FAN_OUT, 54),
        ((6, 10, 3, 3), AVERAGE, 72),
        ((3, 4), AVERAGE, 3.5),
        ((9,), FAN_IN, 1),
        ((9,), FAN_OUT, 9),
        ((8,), AVERAGE, 4.5),
    ],
)
def test_xavier_and_msra_scale_by_the_shape(shape: tuple[int, ...], norm: int, n: float, real: Any) -> None:
    size = int(np.prod(shape))
    wanted = np.empty(size, real)
    scale = np.sqrt(real(3) / real(n))
    Stream(1).uniform(size, -scale, scale, wanted)
    assert np.array_equal(filled(shape, real, type="xavier", variance_norm=norm).ravel(), wanted)
    Stream(1).gaussian(size, 0, np.sqrt(real(2) / real(n)), wanted)
    assert np.array_equal(filled(shape, real, type="msra", variance_norm=norm).ravel(), wanted)


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("k", range(1, 8))
def test_bilinear_is_a_tent(k: int, real: Any) -> None:
    stream = Stream(1)
    got = filled((2, 3, k, k), real, stream, type="bilinear")
    factor = (k + 1) // 2
    tent = 1 - np.abs(np.arange(k) / factor - (k - 1) / (2 * factor))
    assert got == pytest.approx(np.broadcast_to(np.outer(tent, tent), got.shape), rel=1e-6)
    assert got[1, 2].tobytes() == got[0, 0].tobytes() == got[0, 0].T.tobytes()
    assert stream.draws == 0


@pytest.mark.parametrize("kind", ["constant", "uniform", "positive_unitball", "xavier", "msra", "bilinear"])
@pytest.mark.parametrize("sparse", [-2, 0, 3])
def test_sparse_is_refused_after_filling(kind: str, sparse: int) -> None:
    blob, stream, other = Blob((2, 1, 3, 3)), Stream(1), Stream(1)
    wanted = filled(blob.shape, stream=other, type=kind, value=2)
    message = refusal(blob, stream, type=kind, value=2, sparse=sparse)
    assert message == "Check failed: " + SPARSITY.format(sparse)
    assert np.array_equal(blob.cpu_data(), wanted) and stream.draws == other.draws


SCALAR = "axis_index < num_axes() (0 vs. 0) axis 0 out of range for 0-D Blob with shape (1)"


@pytest.mark.parametrize(
    "shape, param, message",
    [
        ((2, 2), {"type": "gauss"}, "false Unknown filler name: gauss"),
        ((2, 2), {"type": "Constant"}, "false Unknown filler name: Constant"),
        ((2, 2), {"type": "uniform", "min": 1, "max": 0, "sparse": 1}, "a <= b (1 vs. 0) "),
        ((2, 2), {"type": "gaussian", "std": 0, "sparse": -3}, "sigma > 0 (0 vs. 0) "),
        ((2, 2), {"type": "gaussian", "sparse": -3}, "sparse >= -1 (-3 vs. -1) "),
        ((3, 2), {"type": "gaussian", "sparse": 4}, "p <= 1 (1.33333 vs. 1) "),
        ((), {"type": "gaussian", "sparse": 0}, "blob->num_axes() >= 1 (0 vs. 1) "),
        ((), {"type": "gaussian", "sparse": -2}, "sparse >= -1 (-2 vs. -1) "),
        ((), {"type": "xavier"}, SCALAR),
        ((), {"type": "msra"}, SCALAR),
        ((), {"type": "positive_unitball"}, SCALAR),
        ((4, 4), {"type": "bilinear"}, "blob->num_axes() == 4 (2 vs. 4) Blob must be 4 dim."),
        ((0, 4), {"type": "bilinear"}, "blob->num_axes() == 4 (2 vs. 4) Blob must be 4 dim."),
        (
            (1, 1, 3, 4),
            {"type": "bilinear", "sparse": 0},
            "blob->width() == blob->height() (4 vs. 3) Filter must be square",
        ),
    ],
)
def test_refusals(shape: tuple[int, ...], param: dict[str, Any], message: str) -> None:
    assert refusal(Blob(shape), **param) == f"Check failed: {message}"


@pytest.mark.parametrize(
    "kind, never_had_memory, had_memory",
    [
        ("constant", "data_ ", "count "),
        ("gaussian", "data_ ", "blob->count() "),
        ("positive_unitball", "data_ ", "dim "),
        ("uniform", "blob->count() ", "blob->count() "),
        ("xavier", "blob->count() ", "blob->count() "),
        ("msra", "blob->count() ", "blob->count() "),
        ("bilinear", "data_ ", None),
    ],
)
@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 0, 3, 3), (2, 2, 0, 0)])
def test_blobs_without_elements(
    kind: str, never_had_memory: str, had_memory: str | None, shape: tuple[int, ...]
) -> None:
    assert refusal(Blob(shape), type=kind) == f"Check failed: {never_had_memory}"
    shrunk = Blob((2, 2, 3, 3))
    shrunk.reshape(shape)
    if had_memory is None:
        fill(shrunk, caffe_pb2.FillerParameter(type=kind), Stream(1))
    else:
        assert refusal(shrunk, type=kind) == f"Check failed: {had_memory}"


def test_get_filler_looks_the_type_up_at_once() -> None:
    param = caffe_pb2.FillerParameter(type="uniform")
    blob, stream = Blob((3,)), Stream(1)
    get_filler(param)(blob, param, stream)
    assert stream.draws == 3
    with pytest.raises(CheckError) as caught:
        get_filler(caffe_pb2.FillerParameter(type=""))
    assert caught.value.message == "Check failed: false Unknown filler name: "
    assert caught.value.file == "filler.hpp"


def test_an_empty_filler_is_constant_zero() -> None:
    assert get_filler(caffe_pb2.FillerParameter()) is get_filler(caffe_pb2.FillerParameter(type="constant"))


def test_only_part_of_a_larger_memory_is_filled() -> None:
    blob = Blob((4,))
    blob.mutable_cpu_data()[:] = 7
    blob.reshape(2)
    fill(blob, caffe_pb2.FillerParameter(type="gaussian"), Stream(1))
    blob.reshape(4)
    assert (blob.cpu_data() == 7).tolist() == [False, False, True, True]
