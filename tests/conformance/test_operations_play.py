"""Playing operations on refcaffe: in a folder of its own, in order, until one is refused; what it lacks is said."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import operations
from conformance.cases import Case, CaseError, Recording, read_case
from conformance.cli import UsageError, default_fixtures
from conformance.engines import Engine, make_engine
from conformance.operations.rows import Guide, RowNames
from conformance.outcome import Status, Unsupported
from conformance.run import run_case

NET = """
name: "small"
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "f" type: "InnerProduct" bottom: "x" top: "f"
        inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "s" type: "Sigmoid" bottom: "f" top: "s" loss_weight: 1 }
"""
SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 max_iter: 9 random_seed: 3\n'

OpList = list[dict[str, Any]]
Play = Callable[..., Recording]


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("refcaffe", "cpu")


@pytest.fixture
def case_of(make_case: Callable[..., Path]) -> Callable[..., Case]:
    """A case of operations with a small net and a solver for it."""

    numbers = count()

    def make(ops: OpList, files: dict[str, str] | None = None, given: Any = None, **keys: Any) -> Case:
        folder = make_case(f"net/a/{next(numbers)}", **{"given": {"ops": ops} | (given or {}), "seed": 1, **keys})
        np.savez(folder / "given.npz", x=np.arange(6, dtype=np.float32).reshape(2, 3), bytes=np.array([3], np.uint8))
        for name, text in ({"net.prototxt": NET, "solver.prototxt": SOLVER} | (files or {})).items():
            (folder / name).write_text(text)
        return read_case(folder)

    return make


@pytest.fixture
def play(case_of: Callable[..., Case], engine: Engine) -> Play:
    def run(ops: OpList, *args: Any, **keys: Any) -> Recording:
        return engine.recording(case_of(ops, *args, **keys), operations.play)

    return run


MAKE = {"op": "net", "model": "net.prototxt", "phase": "TRAIN"}
TRAIN = {"op": "solver", "file": "solver.prototxt"}
PASS = [{"op": "set", "blob": "x", "array": "x"}, {"op": "forward", "as": "run"}]


def test_nothing_is_left_behind(play: Play, tmp_path: Path) -> None:
    before = Path.cwd(), sys.path.copy(), sys.modules.get("caffe"), logging.getLogger("refcaffe").level
    ops = [MAKE, {"op": "save", "file": "deep/w.caffemodel"}, {"op": "files"}]
    got = play(ops, given={"mkdir": ["deep"]})
    assert list(got.values["files"]["files"]) == ["deep/w.caffemodel"]
    assert got.values["files"]["files"]["deep/w.caffemodel"].keys() == {"size", "sha256"}
    after = Path.cwd(), sys.path.copy(), sys.modules.get("caffe"), logging.getLogger("refcaffe").level
    assert after == before
    assert not list(tmp_path.rglob("*.caffemodel"))


def test_python_layers_come_from_the_case_and_are_forgotten(play: Play) -> None:
    layer = "import caffe\nclass {}(caffe.Layer):\n    def setup(self, bottom, top): pass\n"
    layer += "    def reshape(self, bottom, top): top[0].reshape({})\n    def forward(self, bottom, top): pass\n"
    net = 'layer {{ name: "p" type: "Python" top: "p" python_param {{ module: "users" layer: "{}" }} }}'
    for name, size in [("One", 4), ("Two", 5)]:
        files = {"users.py": layer.format(name, size), "net.prototxt": net.format(name)}
        got = play([MAKE, {"op": "shapes", "as": "net"}], files)
        assert got.values["shapes"] == {"net": {"p": [size]}}
        assert "users" not in sys.modules


def test_operations_stop_at_a_refusal_and_it_is_recorded(play: Play) -> None:
    got = play([MAKE, {"op": "copy_from", "file": "gone.caffemodel"}, {"op": "info", "as": "never"}])
    assert got.values["fatal"]["op"] == 1 and got.values["fatal"]["file"] == "net.cpp"
    assert "info" not in got.values and got.values["threads"] == []


def test_what_python_raises_is_recorded(play: Play) -> None:
    got = play([MAKE, {"op": "set", "blob": "x", "array": "bytes"}, {"op": "set", "blob": "no", "array": "x"}])
    assert got.values["exception"] == [{"op": 2, "type": "KeyError", "message": "'no'"}]


def test_complaints_of_the_parser_are_recorded(play: Play) -> None:
    got = play([MAKE], {"net.prototxt": "layer { oops }"})
    assert got.values["parser"] == [[0, "ERROR", got.values["parser"][0][2]]]
    assert 'no field named "oops"' in got.values["parser"][0][2]


def test_the_log_is_filtered_by_file_and_expression(play: Play) -> None:
    got = play([MAKE], given={"log": ["net.cpp|^Setting up"]})
    assert got.values["log"] == [[0, "I net.cpp", f"Setting up {name}"] for name in ("x", "f", "s")]
    assert "log" not in play([MAKE]).values


def test_set_takes_values_bytes_and_offsets(play: Play) -> None:
    ops = [
        MAKE,
        {"op": "set", "blob": "x", "array": "bytes", "offset": -1.5},
        {"op": "set_param", "layer": "f", "index": 1, "value": 7},
        {"op": "dump", "as": "d", "what": ["blobs", "params"], "only": ["x"]},
    ]
    got = play(ops)
    assert np.all(got.arrays["d/blob/x"] == 1.5) and np.all(got.arrays["d/param/f/1"] == 7)
    assert "d/blob/f" not in got.arrays


def test_a_digest_is_what_the_format_says(play: Play) -> None:
    got = play([MAKE, *PASS, {"op": "dump", "as": "d", "what": ["blobs"], "only": ["x"], "digest": "sha"}])
    assert got.values["digests"]["d/blob"]["shapes"] == [[2, 3]]
    assert got.arrays["d/blob/stats"].tolist() == [[15, 15, 55, 0, 5]]
    for key in ("first", "strided"):
        row = got.arrays[f"d/blob/{key}"][0]
        assert row[:6].tolist() == [0, 1, 2, 3, 4, 5] and np.isnan(row[6:]).all() and row.size == 16


def test_feeding_goes_round_and_counts_every_pass(play: Play) -> None:
    solver = TRAIN | {"feed": {"x": "x"}, "feed_from": 1}
    step, dump = {"op": "plain_step", "n": 1}, {"op": "dump", "net": "solver.net", "what": ["blobs"], "only": ["x"]}
    got = play([solver, step, dump | {"as": "a"}, step, dump | {"as": "b"}])
    assert got.arrays["a/blob/x"][0].tolist() == [3, 4, 5] and got.arrays["b/blob/x"][0].tolist() == [0, 1, 2]


def test_exactness_ends_with_the_first_update_unless_it_is_guided(case_of: Callable[..., Case], engine: Engine) -> None:
    ops = [
        TRAIN,
        {"op": "solver_dump", "as": "before"},
        {"op": "step", "n": 2, "as": "run"},
        {"op": "solver_dump", "as": "after"},
    ]
    case = case_of(ops, seed=None)
    got = engine.recording(case, operations.play)
    assert got.values["exact"]["before"] and not got.values["exact"]["after"]
    assert {"run/iter", "run/loss", "run/grad/1", "run/param/0", "run/history/1"} <= got.arrays.keys()
    np.savez(case.folder / "recorded.npz", **got.arrays)
    led = engine.recording(case.fresh(), lambda c, e: operations.play(c, e, guided=True))
    assert led.values["exact"]["after"]
    for name, array in got.arrays.items():
        assert np.array_equal(array, led.arrays[name]), name


def test_a_guide_without_gradients_or_all_states_is_not_complete() -> None:
    arrays: dict[str, np.ndarray] = {name: np.arange(4, dtype=np.float32) for name in ("r/lr", "r/loss")}
    arrays |= {f"r/{name}": np.arange(4, dtype=np.int32) for name in ("iter", "current_step")}
    arrays |= {"r/param/0": np.zeros((4, 2), np.float32), "r/history/0": np.zeros((4, 2), np.float32)}
    assert not Guide(RowNames("r", arrays)).complete
    arrays["r/grad/0"] = np.zeros((4, 2), np.float32)
    assert Guide(RowNames("r", arrays)).complete
    arrays |= {"r/param_iter": np.array([0, 2], np.int32), "r/param/0": np.zeros((2, 2), np.float32)}
    assert not Guide(RowNames("r", arrays)).complete


@pytest.mark.parametrize(
    ("ops", "files", "reason"),
    [
        ([{"op": "levitate"}], {}, "'levitate'"),
        ([MAKE], {"net.prototxt": 'layer { name: "t" type: "Teleport" }'}, "layer type Teleport"),
        ([TRAIN], {"solver.prototxt": f'{SOLVER} type: "Magic"'}, "solver type Magic"),
        ([TRAIN | {"class": "MagicSolver"}], {}, "refcaffe.MagicSolver"),
        ([{"op": "tool", "args": ["make_coffee"], "as": "t"}], {}, "the tool make_coffee"),
    ],
)
def test_what_is_missing_is_unsupported(play: Play, ops: OpList, files: dict[str, str], reason: str) -> None:
    with pytest.raises(Unsupported, match=reason):
        play(ops, files)


def test_an_unknown_type_that_is_refused_in_the_recording_too_is_no_gap(play: Play) -> None:
    refused = {"op": 0, "file": "layer_factory.hpp", "message": "Unknown layer type: Teleport (known types: Absurd)"}
    net = {"net.prototxt": 'layer { name: "t" type: "Teleport" }'}
    assert "Teleport" in play([MAKE], net, recorded={"fatal": refused}).values["fatal"]["message"]


def test_an_array_that_is_not_given_is_a_broken_case(play: Play) -> None:
    with pytest.raises(CaseError, match="no array 'y'"):
        play([MAKE, {"op": "set", "blob": "x", "array": "y"}])


def test_an_update_rounded_otherwise_is_caught(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """It drifts less than the bound of a trajectory, but from recorded states every bit counts."""
    from refcaffe.solvers import sgd

    def in_double_precision(alpha: Any, x: Any, beta: Any, y: Any) -> None:
        y[...] = np.float64(alpha) * x + np.float64(beta) * y

    try:
        case = read_case(default_fixtures() / "solver/update/sgd-plain")
    except UsageError:
        pytest.skip("no recorded cases here")
    assert run_case(case, engine).status is Status.PASSED
    monkeypatch.setattr(sgd, "axpby", in_double_precision)
    outcome = run_case(case, engine)
    assert outcome.status is Status.FAILED
    assert all(difference.where.startswith("from recorded states: run/") for difference in outcome.differences)
