"""Kinds net, solver, snapshot and error: a recording handed back passes, a planted difference is caught and named."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from conformance.cases import CaseError, Recording, read_case
from conformance.cli import UsageError, default_fixtures
from conformance.operations.judging import stated_class
from conformance.outcome import Status
from conformance.run import run_case

try:
    FIXTURES = default_fixtures()
except UsageError:
    pytest.skip("no recorded cases here", allow_module_level=True)

Alter = Callable[[Recording], Any]


def add(name: str, amount: float, index: int = -1) -> Alter:
    """Add to one element of an array."""

    def alter(recording: Recording) -> None:
        recording.arrays[name].reshape(-1)[index] += np.asarray(amount, recording.arrays[name].dtype)

    return alter


def ulps(name: str, count: int = 1) -> Alter:
    """Move the last element of an array by some ulps."""

    def alter(recording: Recording) -> None:
        recording.arrays[name].reshape(-1).view(np.uint32)[-1] += count

    return alter


def put(*path: Any, value: Any) -> Alter:
    """Replace what lies at a path in ``values``."""

    def alter(recording: Recording) -> None:
        place: Any = recording.values
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return alter


def drop(*path: Any) -> Alter:
    """Remove what lies at a path in ``values``."""

    def alter(recording: Recording) -> None:
        place: Any = recording.values
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return alter


def guided(alter: Alter) -> Alter:
    """Hand back the recording as the guided run too, with a change in it."""

    def both(recording: Recording) -> None:
        led = copy.deepcopy(recording)
        led.values["exact"] = dict.fromkeys(("files", "restored", "state", "model"), True)
        alter(led)
        recording.values["guided"] = led

    return both


NET, BACK, DEBUG = "net/structure/auto-top", "net/structure/py-forward", "net/structure/debug-info"
FULL, SGD, ADAM = "net/full/googlenet-224", "solver/update/sgd-plain", "solver/update/adam-plain"
LONG, READ, RESUME = "solver/long/lenet-lmdb", "snapshot/read/v1-layers", "solver/resume/sgd-binaryproto"
STATES = "from recorded states: "

PLANTED: list[tuple[str, Alter, str]] = [
    (NET, ulps("init/param/a/0"), "init/param/a/0["),
    (NET, add("run/blob/a", 1e-5), "run/blob/a["),
    (NET, put("loss", "run", value=2.11517), "loss.run"),
    (NET, lambda r: r.values["info"]["net"]["layer_names"].pop(), "info.net.layer_names["),
    (NET, lambda r: r.arrays.pop("run/blob/a"), "arrays["),
    (NET, lambda r: r.arrays.update(new=np.zeros(1)), "arrays["),
    (NET, put("threads", value=["prefetch"]), "threads left over[0]"),
    (NET, put("fatal", value={"op": 7, "message": "no"}), "fatal: recorded None"),
    (NET, put("exception", value=[{"op": 7, "type": "KeyError"}]), "exception: recorded None"),
    (BACK, lambda r: r.values["returned"]["bend"].pop(), "returned.bend["),
    (BACK, add("bend/t1", 1e-5), "bend/t1["),
    ("net/structure/callbacks", lambda r: r.values["events"]["ev"].reverse(), "events.ev[0]"),
    ("net/structure/reshape-input", put("shapes", "run1", "x", 0, value=2), "shapes.run1.x[0]"),
    (DEBUG, put("log", 0, 2, value="    [Forward] Layer x, top blob x data: 0.678022"), "log[0]"),
    (DEBUG, put("log", 0, 2, value="    [Forward] Layer y, top blob x data: 0.677922"), "log[0][2]"),
    (DEBUG, put("log", 0, 0, value=3), "log[0][0]"),
    (DEBUG, put("log", 0, 1, value="W net.cpp"), "log[0][1]"),
    (DEBUG, drop("log", -1), "log: number of lines"),
    (FULL, put("digests", "init/param", "sha256", 3, value="00"), "digests.init/param.sha256[3]"),
    (FULL, add("init/param/stats", 1e-7, 0), "init/param/stats[0, 0]"),
    (FULL, add("run/blob/first", 1e-2, 16 * 40), "run/blob/first[40, 0]"),
    (FULL, add("run/param_diff/stats", 1.0, 1), "run/param_diff/stats[0, 1]"),
    ("net/weights/shared-parameters", put("decoded", "proto", "text", value=""), "decoded.proto.text"),
    ("net/weights/shared-parameters", drop("decoded", "hdf5", "tree", "data/"), "decoded.hdf5.tree.data/"),
    ("net/weights/shared-parameters", ulps("proto/a/0/data"), "proto/a/0/data["),
    ("net/weights/shared-parameters", drop("kept", 1), "kept[1]"),
    (SGD, add("run/iter", 1), "run/iter[9]"),
    (SGD, add("run/current_step", 1), "run/current_step[9]"),
    (SGD, ulps("run/lr", 5), "run/lr[9]"),
    (SGD, lambda r: add("run/loss", 2e-6 * r.arrays["run/loss"][0], 0)(r), "run/loss[0]"),
    (SGD, add("run/smoothed_loss", 1e-4), "run/smoothed_loss[9]"),
    (SGD, add("run/grad/0", 1e-4), "run/grad/0[9, "),
    (SGD, add("run/param/0", 1e-4), "run/param/0[9, "),
    (SGD, lambda r: r.arrays.pop("run/history/1"), "run: arrays["),
    (SGD, put("solver_state", "run", "iter", value=9), "solver_state.run.iter"),
    (SGD, put("solver_state", "run", "losses", value=[]), "solver_state.run: number of losses"),
    (SGD, put("solver_state", "run", "smoothed_loss", value=1.0), "solver_state.run.smoothed_loss"),
    (SGD, drop("log", 1), "log[1]"),
    (SGD, guided(ulps("run/param/0")), f"{STATES}run/param/0[9, "),
    (SGD, guided(ulps("run/history/1")), f"{STATES}run/history/1[9, "),
    (SGD, guided(add("run/grad/1", 1e-4)), f"{STATES}run/grad/1[9, "),
    (SGD, guided(put("fatal", value={"op": 1})), f"{STATES}fatal"),
    (ADAM, guided(ulps("run/history/3")), f"{STATES}run/history/3[9, "),
    (ADAM, guided(ulps("run/param/0", 60)), f"{STATES}run/param/0[9, "),
    (LONG, put("initial", value={"run/4": np.zeros((16, 24), np.float32)}), "first weights 4"),
    (LONG, guided(add("run/loss", 1e-5)), f"{STATES}run/loss[99]"),
    (LONG, guided(add("run/param/0", 1e-5)), f"{STATES}run/param/0[4, "),
    (RESUME, put("compare", "resumed_vs_whole", "different", value=[]), "compare.resumed_vs_whole.different"),
    (RESUME, drop("files", "files", "snap_iter_3.caffemodel"), "files.snap_iter_3.caffemodel"),
    (RESUME, put("files", "files", "half", value={"size": 1, "sha256": "0"}), "files.half"),
    (RESUME, guided(put("files", "files", "snap_iter_3.caffemodel", "sha256", value="0")), "3.caffemodel.sha256"),
    (RESUME, guided(ulps("restored/param/0")), f"{STATES}restored/param/0["),
    (RESUME, guided(ulps("state/history/0/data")), f"{STATES}state/history/0/data["),
    (READ, ulps("loaded/param/ip1/0"), "loaded/param/ip1/0["),
    (READ, put("files", "files", "again.caffemodel", "sha256", value="0"), "files.again.caffemodel.sha256"),
    ("snapshot/written/mean", put("tool_exit", "mean", value=1), "tool_exit.mean"),
    ("solver/policy/lr-property", put("lr", "read1", value=0.0250001), "lr.read1"),
    ("solver/nets/py-param", put("py_param", "after", "base_lr", value=0.1), "py_param.after.base_lr"),
    ("solver/files/prefix-default", put("solver_param", "param", value=""), "solver_param.param"),
    ("error/counts/crop-one", put("fatal", "op", value=1), "fatal.op"),
    ("error/counts/crop-one", put("fatal", "file", value="net.hpp"), "fatal.file"),
    ("error/counts/crop-one", put("fatal", "message", value="no"), "fatal.message"),
    ("error/counts/crop-one", drop("fatal"), "fatal: recorded {"),
    ("error/counts/crop-one", put("threads", value=["prefetch"]), "threads left over[0]"),
    ("error/net/set-wrong-shape", put("exception", 0, "type", value="KeyError"), "exception[0].type"),
    ("error/net/blobs-count", put("fatal", value={"op": 0, "message": "no"}), "fatal: recorded None"),
    ("error/data/image-missing", put("errors", value=[]), "errors[0]"),
    ("error/parse/syntax", drop("parser", 0), "parser[0]"),
]


@pytest.mark.parametrize("case_id", sorted({planted[0] for planted in PLANTED}))
def test_a_recording_handed_back_passes(case_id: str, replay: Any) -> None:
    outcome = run_case(read_case(FIXTURES / case_id), replay())
    assert outcome.status is Status.PASSED, str(outcome)
    assert outcome.comparisons > 1


@pytest.mark.parametrize("case_id", [SGD, ADAM, LONG, RESUME])
def test_a_recording_handed_back_as_guided_run_too_passes(case_id: str, replay: Any) -> None:
    outcome = run_case(read_case(FIXTURES / case_id), replay(guided(lambda recording: None)))
    assert outcome.status is Status.PASSED, str(outcome)


@pytest.mark.parametrize(("case_id", "alter", "shown"), PLANTED)
def test_a_planted_difference_is_caught(case_id: str, alter: Alter, shown: str, replay: Any) -> None:
    outcome = run_case(read_case(FIXTURES / case_id), replay(alter))
    assert outcome.status is Status.FAILED, str(outcome)
    assert any(shown in str(difference) for difference in outcome.differences), str(outcome)


def test_rounding_within_the_bounds_passes(replay: Any) -> None:
    changes = {
        NET: [ulps("run/blob/a", 2), ulps("run/param_diff/b/0", 2)],
        SGD: [ulps("run/lr"), ulps("run/loss"), ulps("run/param/0")],
        ADAM: [guided(ulps("run/param/0"))],  # a root of another libm
        DEBUG: [put("log", 0, 2, value="    [Forward] Layer x, top blob x data: 0.677923")],
    }
    for case_id, alterations in changes.items():
        for alter in alterations:
            outcome = run_case(read_case(FIXTURES / case_id), replay(alter))
            assert outcome.status is Status.PASSED, str(outcome)


def test_clipped_gradients_may_be_off_as_far_as_their_norm_and_no_further(replay: Any) -> None:
    case = read_case(FIXTURES / "solver/clip/active")

    def led(amount: float, shaken: bool) -> Status:
        def alter(recording: Recording) -> None:
            if shaken:
                recording.values["shaken"] = copy.deepcopy(recording)
                add("run/param/0", 4e-7)(recording.values["shaken"])
            add("run/param/0", amount)(recording)

        return run_case(case, replay(guided(alter))).status

    assert led(2e-7, shaken=True) is Status.PASSED
    assert led(2e-6, shaken=True) is led(2e-7, shaken=False) is Status.FAILED


def test_what_nobody_wrote_is_not_compared(replay: Any) -> None:
    forget = drop("solver_state", "one", "smoothed_loss")
    outcome = run_case(read_case(FIXTURES / "solver/apply-update/by-hand"), replay(forget))
    assert outcome.status is Status.PASSED, str(outcome)


def test_a_division_by_zero_may_be_refused_or_done(replay: Any) -> None:
    case = read_case(FIXTURES / "error/layer/conv-stride-w-alone")
    refuse = put("fatal", value={"op": 0, "file": "base_conv_layer.cpp", "message": "no"})
    assert run_case(case, replay()).status is run_case(case, replay(refuse)).status is Status.PASSED


def test_kept_files_are_compared_by_their_bytes_or_by_what_they_hold(replay: Any) -> None:
    pytest.importorskip("h5py")
    case = read_case(FIXTURES / "net/weights/shared-parameters")
    kept = {name: (case.folder / name).read_bytes() for name in case.recorded.values["kept"]}
    assert run_case(case, replay(put("kept_bytes", value={"kept": kept}))).status is Status.PASSED
    for name, other in (("out/a.caffemodel", b"\x01"), ("out/a.caffemodel.h5", None)):
        data = other or (FIXTURES / "net/weights/copy-by-name" / name).read_bytes()
        outcome = run_case(case, replay(put("kept_bytes", value={"kept": kept | {name: data}})))
        assert outcome.status is Status.FAILED and name in str(outcome)


def test_a_kept_file_that_is_not_there_is_a_broken_case(replay: Any, make_case: Any) -> None:
    case = read_case(make_case("net/a/b", given={"ops": []}, recorded={"kept": ["out/w"]}))
    outcome = run_case(case, replay(put("kept_bytes", value={"kept": {"out/w": b""}})))
    assert outcome.reason.startswith("broken case") and "out/w" in outcome.reason


def test_a_section_the_suite_does_not_know_is_unsupported(replay: Any, make_case: Any) -> None:
    case = read_case(make_case("net/a/b", given={"ops": []}, recorded={"aura": {}}))
    outcome = run_case(case, replay())
    assert outcome.status is Status.UNSUPPORTED and "recorded.aura" in outcome.reason


TABLE = {
    "info": "bitwise",
    "lr": "libm",
    "history, param": "bitwise given lr, grad and the row before, but for powf (libm)",
    "log": "blas, printed with 6 digits",
    "mean": "bitwise: float sums in order",
    "*": "blas",
}


@pytest.mark.parametrize(
    ("name", "exact", "stated"),
    [
        ("run/lr", True, "libm"),
        ("run/blob/a", True, "blas"),
        ("restored/param/0", True, "bitwise"),
        ("restored/param/0", False, "blas"),
        ("state/history/0/data", False, "blas"),
        ("info", False, "bitwise"),
        ("mean/data", False, "bitwise"),
        ("log", False, "blas"),
    ],
)
def test_sentences_of_exactness(make_case: Any, name: str, exact: bool, stated: str) -> None:
    assert stated_class(read_case(make_case("net/a/b", exactness=TABLE)), name, exact) == stated


def test_a_digest_without_its_arrays_is_a_broken_case(make_case: Any, replay: Any) -> None:
    digests = {"run/blob": {"names": ["run/blob/x"], "shapes": [[1]]}}
    case = read_case(make_case("net/a/b", given={"ops": []}, recorded={"digests": digests}))
    assert "no array 'run/blob/stats'" in run_case(case, replay()).reason
    with pytest.raises(CaseError):
        case.recorded_array("run/blob/stats")
