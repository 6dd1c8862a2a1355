"""Small cases made on the spot, and an engine that hands back what was recorded, perhaps altered."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bounds.running import Bounded
from conformance.cases import Case, Recording
from conformance.engines import Engine


class Replay(Engine):
    """Gives a case's own recording after ``alter`` has changed it: the way a recorded original Caffe plugs in."""

    name = "replay"

    def __init__(self, alter: Callable[[Recording], Any] = lambda recording: None) -> None:
        self.alter = alter

    def recording(self, case: Case, play: Callable[[Case, Engine], Recording]) -> Recording:
        recorded = Recording(dict(case.recorded.values), dict(case.recorded.arrays))
        if "file" in case.given:  # syncedmem keeps its steps beside case.json
            with gzip.open(case.folder / case.given["file"], "rt") as file:
                recorded.values["steps"] = [json.loads(line)["steps"] for line in file]
        recorded = copy.deepcopy(recorded)
        self.alter(recorded)
        return recorded


@pytest.fixture
def replay() -> type[Replay]:
    return Replay


@pytest.fixture(scope="session")
def shares() -> Callable[[np.ndarray, Bounded], np.ndarray]:
    """Distance of floats from their exact values, as a share of its bound; 0 for infinities and NaNs as expected."""

    def share(floats: np.ndarray, exact: Bounded) -> np.ndarray:
        with np.errstate(all="ignore"):
            value = exact.value.astype(np.float32)
            not_finite = ~np.isfinite(value) & ((floats == value) | (np.isnan(floats) & np.isnan(value)))
            error = np.abs(floats.astype(float) - exact.value)
            return np.where((error == 0) | not_finite, 0, error / exact.error)

    return share


@pytest.fixture
def make_case(tmp_path: Path) -> Callable[..., Path]:
    """Write a case folder; keyword arguments replace keys of its case.json, ``arrays`` its recorded.npz."""

    def make(case_id: str, arrays: dict[str, Any] | None = None, **keys: Any) -> Path:
        kind, _, name = case_id.partition("/")
        folder = tmp_path / case_id
        folder.mkdir(parents=True)
        document = {
            "format": 1,
            "kind": kind,
            "name": name,
            "upstream": "bvlc-1.0-cpu",
            "mode": "CPU",
            "given": {},
            "recorded": {},
        }
        (folder / "case.json").write_text(json.dumps(document | keys))
        if arrays is not None:
            np.savez(folder / "recorded.npz", **arrays)
        return folder

    return make


@pytest.fixture
def rng_case(make_case: Callable[..., Path]) -> Path:
    """A right case of kind rng: three raw values of seed 42."""
    words = np.random.RandomState(42).randint(0, 2**32, 4, dtype=np.uint32)
    return make_case(
        "rng/raw/three",
        {"s0.c0": words[:3]},
        seed=42,
        given={"scripts": [[["rand", 3]]]},
        recorded={"scripts": [[{"draws": 3, "next": int(words[3]), "array": "s0.c0"}]]},
    )
