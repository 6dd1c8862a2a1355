"""Running cases: right ones pass, a planted difference in any kind is caught and shown, nothing crashes the run."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import kinds
from conformance.cases import Recording, read_case
from conformance.cli import UsageError, default_fixtures
from conformance.engines import Engine, make_engine
from conformance.outcome import Status
from conformance.run import run_case, run_cases

try:
    FIXTURES = default_fixtures()
except UsageError:
    pytest.skip("no recorded cases here", allow_module_level=True)


def one_ulp(array: np.ndarray) -> None:
    array.reshape(-1).view(f"u{array.itemsize}")[-1] ^= 1


def first_step(recording: Recording) -> dict[str, Any]:
    return recording.values["scripts"][0][0]


def plant_sum(recording: Recording) -> None:
    """Move one recorded sum, which may not be exact, by a thousandth."""
    step = next(s for script in recording.values["scripts"] for s in script if s.get("exactness") and s["ret"])
    step["ret"] *= 1.001


def drop_fatal(recording: Recording) -> None:
    recording.values.pop("fatal")


PLANTED: list[tuple[str, Callable[[Recording], Any], str]] = [
    ("rng/uniform/float-0", lambda r: one_ulp(r.arrays["s0.c0"]), "uniform(float, 0.0, 1.0, 300)[299]"),
    ("rng/uniform/float-0", lambda r: first_step(r).update(draws=301), ".draws: recorded 300, got 301"),
    ("rng/uniform/float-0", lambda r: first_step(r).update(next=0), ".next"),
    ("rng/uniform/float-0", lambda r: first_step(r).pop("array"), ".array: recorded True, got False"),
    ("rng/uniform/float-0", lambda r: r.values["scripts"][0].pop(), ".draws: recorded 1, got '…'"),
    ("rng/errors/all", lambda r: r.values["scripts"][3].pop(), ".fatal: recorded {'file'"),
    ("filler/gaussian/many", lambda r: one_ulp(r.arrays["fill.0"]), "fill.0["),
    ("filler/gaussian/many", lambda r: r.arrays.clear(), "no fill.0"),
    ("filler/refused/gaussian-std-zero", lambda r: r.values["fatal"].update(step="setup"), "got 'setup'"),
    ("filler/refused/gaussian-std-zero", lambda r: r.values["fatal"].update(message="no"), "got 'no'"),
    ("filler/refused/gaussian-std-zero", drop_fatal, "got None"),
    ("blob/update/cpu-mode", lambda r: first_step(r)["events"].append(["axpy", "cpu", 1]), ".events[2]"),
    ("blob/update/cpu-mode", lambda r: first_step(r)["blobs"]["a"].update(capacity=1), ".blobs.a.capacity"),
    ("blob/norms/all", plant_sum, "sum"),
    ("blob/access/no-memory", lambda r: first_step(r).clear(), ".ret"),
    ("syncedmem/long/master-gpu-mode", lambda r: r.values["steps"][2][0].update(head="SYNCED"), "line 3 ("),
    ("syncedmem/long/master-gpu-mode", lambda r: r.values["steps"][0].pop(), "'destroyed': True"),
]


@pytest.mark.parametrize("case_id", sorted({planted[0] for planted in PLANTED}))
def test_a_recording_handed_back_passes(case_id: str, replay: Any) -> None:
    outcome = run_case(read_case(FIXTURES / case_id), replay())
    assert outcome.status is Status.PASSED, str(outcome)
    assert outcome.comparisons > 0 and "bitwise" in outcome.worst


@pytest.mark.parametrize(("case_id", "alter", "shown"), PLANTED)
def test_a_planted_difference_is_caught(
    case_id: str, alter: Callable[[Recording], Any], shown: str, replay: Any
) -> None:
    outcome = run_case(read_case(FIXTURES / case_id), replay(alter))
    assert outcome.status is Status.FAILED and outcome.count >= 1
    assert shown in str(outcome.differences[0])


def test_undefined_behaviour_may_end_in_a_refusal_or_not(replay: Any) -> None:
    case = read_case(FIXTURES / "blob/access/no-memory")

    def refuse(recording: Recording) -> None:
        for steps in recording.values["scripts"]:
            if "crash" in steps[-1]:
                steps[-1] = {"fatal": {"file": "blob.cpp", "message": "Check failed: data_ "}, "events": []}

    assert run_case(case, replay(refuse)).status is Status.PASSED


def test_a_kind_without_runner_is_unsupported(make_case: Callable[..., Path], replay: Any) -> None:
    outcome = run_case(read_case(make_case("teleport/a/b")), replay())
    assert outcome.status is Status.UNSUPPORTED and "teleport" in outcome.reason


def test_an_engine_without_the_part_is_unsupported(rng_case: Path) -> None:
    outcome = run_case(read_case(rng_case), type("Bare", (Engine,), {})())
    assert outcome.status is Status.UNSUPPORTED and "random streams" in outcome.reason


def test_an_exception_fails_its_case_and_says_where(rng_case: Path, replay: Any) -> None:
    def broken(recording: Recording) -> None:
        raise ZeroDivisionError("planted")

    outcome = run_case(read_case(rng_case), replay(broken))
    assert outcome.status is Status.FAILED
    assert "ZeroDivisionError: planted" in outcome.reason and "test_conformance_run.py" in outcome.reason


def test_a_broken_case_fails_and_is_named(rng_case: Path, replay: Any) -> None:
    (rng_case / "case.json").write_text("{")
    outcome = run_case(read_case(rng_case), replay())
    assert outcome.status is Status.FAILED and str(rng_case / "case.json") in outcome.reason


def test_a_missing_array_is_a_broken_case(rng_case: Path) -> None:
    (rng_case / "recorded.npz").unlink()
    outcome = run_case(read_case(rng_case), make_engine("refcaffe", "cpu"))
    assert outcome.status is Status.FAILED and "no array 's0.c0'" in outcome.reason


def test_a_truncated_file_of_sequences_is_a_broken_case(tmp_path: Path) -> None:
    folder = tmp_path / "case"
    shutil.copytree(FIXTURES / "syncedmem/long/master-gpu-mode", folder)
    data = (folder / "sequences.jsonl.gz").read_bytes()
    (folder / "sequences.jsonl.gz").write_bytes(data[: len(data) // 2])
    outcome = run_case(read_case(folder), make_engine("refcaffe", "cpu"))
    assert outcome.status is Status.FAILED and "sequences.jsonl.gz: cannot be read" in outcome.reason


def test_several_processes_give_the_same_outcomes_in_order() -> None:
    cases = [read_case(path.parent) for path in sorted((FIXTURES / "rng").rglob("case.json"))][:9]
    alone = list(run_cases(cases, "refcaffe", "cpu"))
    together = list(run_cases(cases, "refcaffe", "cpu", processes=2))
    assert [(o.id, o.status, o.comparisons) for o in alone] == [(o.id, o.status, o.comparisons) for o in together]


def test_every_runner_has_its_two_parts() -> None:
    assert {"blob", "filler", "rng", "syncedmem"} <= set(kinds.supported())
    for kind in kinds.supported():
        assert all(map(callable, kinds.find(kind)))
