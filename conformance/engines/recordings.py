"""Recordings of another Caffe as an engine: what ``conformance record`` wrote, compared like any engine's results."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conformance.cases import Case, Recording, provenance, read_case
from conformance.engines.base import Engine, EngineError
from conformance.outcome import Unsupported

_PIXELS = ("decoded/", "pixels/")  # arrays that hold what a codec gave


class RecordingsEngine(Engine):
    """Gives what a folder of recorded cases holds. Raises EngineError if there is no such folder."""

    name = "recordings"

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise EngineError(f"{folder}: no such folder of recordings")
        self._folder = folder.absolute()

    def describe(self) -> dict[str, str]:
        recorded = provenance(self._folder)
        entries = recorded.get("upstreams", {})
        shown = {
            name: f"{entry.get('source')} {entry.get('version')}, {entry.get('build')}"
            for name, entry in entries.items()
        }
        return {"engine": self.name, **shown, "recorded": recorded.get("recorded", "unknown")}

    def recording(self, case: Case, play: Callable[[Case, Engine], Recording]) -> Recording:
        other = read_case(self._folder / case.kind / case.name)
        if other.problem or not other.document["recorded"]:
            raise Unsupported("cases that are not among the recordings")
        got = Recording(dict(other.recorded.values), dict(other.recorded.arrays))
        adapt = _ADAPT.get(case.kind)
        if adapt:
            adapt(case, other, got)
        return got


def _steps(case: Case, other: Case, got: Recording) -> None:
    with gzip.open(other.folder / other.given["file"], "rt", encoding="utf-8") as file:
        got.values["steps"] = [json.loads(line)["steps"] for line in file]


def _written(case: Case, other: Case, got: Recording) -> None:
    got.values["written"] = (other.folder / got.values["output"]).read_bytes() if "output" in got.values else None


def _kept(case: Case, other: Case, got: Recording) -> None:
    names = got.values.get("kept", [])
    got.values["kept_bytes"] = {"kept": {name: (other.folder / name).read_bytes() for name in names}}


def _taken_pixels(got: Recording) -> dict[str, Any]:
    return {name: got.arrays.pop(name) for name in list(got.arrays) if name.startswith(_PIXELS)}


def _transformed(case: Case, other: Case, got: Recording) -> None:
    own = _taken_pixels(got)
    got.values["decoded"] = {name: name for name in own}, own
    got.values.setdefault("log", [])


def _loaded(case: Case, other: Case, got: Recording) -> None:
    own = _taken_pixels(got)
    recorded = case.recorded.arrays
    got.values["decoded"] = [(name, name, recorded[name]) for name in recorded if name.startswith(_PIXELS)], own


_ADAPT: dict[str, Callable[[Case, Case, Recording], None]] = {
    "syncedmem": _steps,
    "upgrade": _written,
    "net": _kept,
    "solver": _kept,
    "snapshot": _kept,
    "transform": _transformed,
    "data": _loaded,
}
