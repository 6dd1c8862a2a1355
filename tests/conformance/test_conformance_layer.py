"""Kind layer: planted differences of every class are caught, rounding is not; what the runner itself watches for."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.cases import Recording, read_case
from conformance.cli import UsageError, default_fixtures
from conformance.engines import Engine, make_engine
from conformance.outcome import Status
from conformance.run import run_case

try:
    LAYERS = default_fixtures() / "layer"
except UsageError:
    pytest.skip("no recorded cases here", allow_module_level=True)

Alter = Callable[[Recording], Any]


def moved(name: str, ulps: int, index: int = -1) -> Alter:
    """One element by some units in the last place."""

    def alter(recording: Recording) -> None:
        flat = recording.arrays[name].reshape(-1)
        flat[index] += np.float32(ulps) * np.spacing(flat[index])

    return alter


def scaled(name: str, factor: float) -> Alter:
    return lambda recording: recording.arrays[name].__imul__(np.float32(factor))


def change(name: str, function: Callable[[np.ndarray], np.ndarray]) -> Alter:
    return lambda recording: recording.arrays.update({name: np.asarray(function(recording.arrays[name]))})


def drop(name: str) -> Alter:
    return lambda recording: recording.arrays.pop(name)


def values(**keys: Any) -> Alter:
    return lambda recording: recording.values.update(keys)


def negative_zero(array: np.ndarray) -> np.ndarray:
    return np.where(array == 0, -array, array)


def swapped(array: np.ndarray) -> np.ndarray:
    return array[:, ::-1].copy()


PLANTED: list[tuple[str, Alter, str]] = [
    # bitwise
    ("relu/slope", moved("s0.data.y", 1), "s0.data.y["),
    ("relu/default", change("s0.data.y", negative_zero), "s0.data.y["),
    ("pooling/max-mask", moved("s0.data.mask", 1), "s0.data.mask["),
    ("dropout/train", moved("s1.diff.x", 1, 0), "s1.diff.x[0"),
    ("convolution/fillers", moved("setup.param.0", 1), "setup.param.0["),
    ("convolution/k3-s2-p1-exact-sums", moved("s2.param_diff.0", 1), "s2.param_diff.0["),
    ("dummy_data/fillers-per-top", moved("setup.data.b", 1), "setup.data.b["),
    ("parameter/2d", moved("s2.param_diff.0", 1), "s2.param_diff.0["),
    ("reshape/to-scalar", change("s0.data.y", lambda array: array.reshape(1)), "recorded float32[], got float32[1]"),
    ("filter/none", change("s0.data.y", lambda array: array[:, :1]), "recorded float32[0, 2], got float32[0, 1]"),
    (
        "relu/non-finite",
        change("s0.data.y", lambda array: np.where(np.isnan(array), 0, array)),
        "recorded nan, got 0.0",
    ),
    # libm
    ("tanh/4d", moved("s0.data.y", 8), "s0.data.y["),
    ("exp/base-2", moved("s0.data.y", 12), "s0.data.y["),
    ("bnll/large", change("s0.data.y", np.negative), "s0.data.y["),
    ("sigmoid/large", moved("s1.diff.x", 1000), "s1.diff.x["),
    ("elu/alpha", scaled("s1.diff.x", 1.00001), "s1.diff.x["),
    ("log/zero-and-negative", change("s0.data.y", lambda array: np.where(np.isinf(array), -100, array)), "got -100.0"),
    ("log/zero-and-negative", change("s0.data.y", np.nan_to_num), "s0.data.y["),
    ("sigmoid_cross_entropy_loss/default", scaled("s0.loss", 1.00001), "s0.loss"),
    # blas
    ("convolution/group", moved("s0.data.y", 400), "s0.data.y["),
    ("convolution/group", change("s0.data.y", swapped), "s0.data.y["),
    ("convolution/accumulate", scaled("s4.param_diff.0", 0.5), "s4.param_diff.0["),
    ("deconvolution/k3", scaled("s2.diff.x", 1.00001), "s2.diff.x["),
    ("inner_product/transpose", change("s2.param_diff.0", np.zeros_like), "s2.param_diff.0["),
    ("batch_norm/train-eps", scaled("s1.param.1", 1.00001), "s1.param.1["),
    ("lrn/alexnet-like", scaled("s1.diff.x", 1.0001), "s1.diff.x["),
    ("lstm/two-forwards", change("s1.data.h", np.zeros_like), "s1.data.h["),
    ("rnn/given", scaled("s2.param_diff.3", 1.00001), "s2.param_diff.3["),
    ("softmax/4d", scaled("s0.data.y", 1.00001), "s0.data.y["),
    ("softmax_with_loss/ignore-label", scaled("s1.diff.x", 1.00001), "s1.diff.x["),
    ("scale/default", scaled("s2.param_diff.0", 1.0001), "s2.param_diff.0["),
    ("abs_val/gradient-not-wanted", scaled("s0.loss", 1.00001), "s0.loss"),
    ("contrastive_loss/gradient-not-wanted", change("s1.diff.a", lambda array: array + 1e-7), "s1.diff.a["),
    # names, shapes, refusals
    ("relu/default", drop("s0.data.y"), "no s0.data.y"),
    ("relu/default", lambda r: r.arrays.update({"s0.loss": np.float32(0)}), "no s0.loss"),
    ("batch_norm/train", drop("s0.param.0"), "no s0.param.0"),
    ("slice/points", lambda r: r.values["tops"].update(a=[1]), "tops."),
    ("convolution/k3", values(params=[[2, 3, 3, 3]]), "params["),
    ("softmax_with_loss/no-top", values(loss_weights=[0.0]), "loss_weights[0]: recorded 1.0, got 0.0"),
    ("softmax_with_loss/2d", values(untouched=[]), "untouched, but written"),
    ("tile/error-none", lambda r: r.values["fatal"].update(message="no"), "got 'no'"),
    ("tile/error-none", lambda r: r.values["fatal"].update(step="s0"), "got 's0'"),
    ("tile/error-none", lambda r: r.values.pop("fatal"), "got None"),
    ("relu/default", values(fatal={"step": "s0", "message": "no"}), "recorded None, got {"),
]


@pytest.mark.parametrize("name", sorted({planted[0] for planted in PLANTED}))
def test_a_recording_handed_back_passes(name: str, replay: Any) -> None:
    outcome = run_case(read_case(LAYERS / name), replay())
    assert outcome.status is Status.PASSED, str(outcome)


@pytest.mark.parametrize(("name", "alter", "shown"), PLANTED)
def test_a_planted_difference_is_caught(name: str, alter: Alter, shown: str, replay: Any) -> None:
    outcome = run_case(read_case(LAYERS / name), replay(alter))
    assert outcome.status is Status.FAILED and outcome.differences, str(outcome)
    assert shown in str(outcome.differences[0])


@pytest.mark.parametrize(
    ("name", "array"),
    [("tanh/4d", "s0.data.y"), ("convolution/k3", "s0.data.y"), ("lstm/given", "s2.param_diff.0")],
)
def test_rounding_is_no_difference_but_is_shown(name: str, array: str, replay: Any) -> None:
    case = read_case(LAYERS / name)
    outcome = run_case(case, replay(moved(array, 1)))
    assert outcome.status is Status.PASSED
    near = outcome.worst[case.exactness(array.split(".")[1])]
    assert 0 < near.error < near.bound and near.where == array


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("refcaffe", "cpu")


def test_zeros_written_where_nothing_should_be_are_caught(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from refcaffe.layers.softmax_with_loss import SoftmaxWithLoss

    right = SoftmaxWithLoss.backward_at

    def backward_at(self: Any, side: Any, top: Any, propagate_down: Any, bottom: Any) -> None:
        right(self, side, top, propagate_down, bottom)
        side.mutable_diff(bottom[1]).fill(0)

    monkeypatch.setattr(SoftmaxWithLoss, "backward_at", backward_at)
    outcome = run_case(read_case(LAYERS / "softmax_with_loss/2d"), engine)
    assert outcome.status is Status.FAILED and "'label'" in str(outcome.differences[0])


def test_a_gradient_that_is_not_written_is_caught(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from refcaffe.layers.relu import ReLU

    monkeypatch.setattr(ReLU, "backward_at", lambda *arguments: None)
    outcome = run_case(read_case(LAYERS / "relu/default"), engine)
    assert outcome.status is Status.FAILED and "got nan" in str(outcome.differences[0])


def test_a_type_that_is_not_there_is_unsupported(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    from refcaffe.layers import base

    monkeypatch.delitem(base._registry, "Tile")
    outcome = run_case(read_case(LAYERS / "tile/once"), engine)
    assert outcome.status is Status.UNSUPPORTED and "Tile" in outcome.reason


def test_files_of_a_case_are_found_from_anywhere(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = run_case(read_case(LAYERS / "infogain_loss/matrix-file"), engine)
    assert outcome.status is Status.PASSED and Path.cwd() == tmp_path


def test_a_class_without_a_derived_bound_is_unsupported(
    tmp_path: Path, replay: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(LAYERS / "relu/default", folder)
    text = (folder / "case.json").read_text().replace('"data": "bitwise"', '"data": "blas"')
    (folder / "case.json").write_text(text)
    outcome = run_case(read_case(folder), replay(moved("s0.data.y", 1)))
    assert outcome.status is Status.UNSUPPORTED and "no error bound is derived for layer type ReLU" in outcome.reason
