"""Comparing what was recorded in GPU mode: heads and copies exactly, numbers by their class."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.gpumode.limits import Limits, Path
from conformance.outcome import Findings

_NOT_OURS = ("alloc", "launches", "exactness", "differs_from_cpu_mode", "draws")
_NUMBERS = ("loss", "loss_blob", "value")


def draws_of(case: Case) -> list[str]:
    """The names of the arrays that the device's generator gave, in order."""
    found = (name for name in case.recorded.arrays if name.startswith("draw"))
    return case.recorded.values.get("draws") or sorted(found, key=lambda name: int(name[4:]))


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Compare a run. Of ``got.values``, ``drawn`` and ``shaken`` are about it, the rest is what was recorded."""
    _Judgement(case, got, findings).arrays()


class _Judgement:
    def __init__(self, case: Case, got: Recording, findings: Findings) -> None:
        self.case, self.got, self.findings = case, got, findings
        self.limits = Limits(case, got.values.pop("shaken"))
        self.draws = draws_of(case)
        drawn = [[str(draw.dtype), draw.size] for draw in map(case.recorded_array, self.draws)]
        findings.value("draws", drawn, got.values.pop("drawn"))
        self._values((), case.recorded.values, got.values)

    # --- case.json

    def _values(self, path: Path, recorded: Any, got: Any) -> None:
        """All but what is only there to be read."""
        if isinstance(recorded, dict) and isinstance(got, dict):
            keys = [key for key in recorded if key not in _NOT_OURS]
            self.findings.value(f"{_shown(path)}: entries", sorted(keys), sorted(got))
            for key in keys:
                if key in got:
                    self._entry((*path, key), recorded[key], got[key])
        elif isinstance(recorded, list) and recorded and isinstance(recorded[0], dict):
            self.findings.value(f"{_shown(path)}: number", len(recorded), len(got))
            for i, (a, b) in enumerate(zip(recorded, got)):
                self._values((*path, i), a, b)
        else:
            self.findings.value(_shown(path), recorded, got)

    def _entry(self, path: Path, recorded: Any, got: Any) -> None:
        """Copies are multisets; a computed number has its bound."""
        if path[-1] in ("copies", "prefetch_copies"):
            self.findings.value(_shown(path), *(sorted(side, key=str) for side in (recorded, got)))
        elif path[-1] in _NUMBERS and not isinstance(recorded, str):
            expected, found = (np.asarray(np.nan if side is None else side, np.float32) for side in (recorded, got))
            exactness, bound = self.limits.of_number(path, recorded, self.got)
            self.findings.array(_shown(path), expected, found, exactness, bound)
        else:
            self._values(path, recorded, got)

    # --- recorded.npz

    def arrays(self) -> None:
        """All but the draws, and those beside them that need not be there."""
        recorded, own = self.case.recorded.arrays, self.got.arrays
        for name in recorded:
            if name in self.draws:
                continue
            if name in own:
                self._array(name, recorded[name])
            else:
                self.findings.value("arrays", name, f"no {name}")
        for name in own.keys() - recorded.keys():
            self._unrecorded(name)

    def _array(self, name: str, recorded: np.ndarray) -> None:
        exactness, bound = self.limits.of(name, recorded, self.got)
        self.findings.array(name, recorded, self.got.arrays[name], exactness, bound)

    def _unrecorded(self, name: str) -> None:
        """An array of a layer's second iteration is not recorded where it is that of the first, to the bit."""
        first = "i0" + name.removeprefix("i1")
        if name.startswith("i1") and self.case.given["run"] == "layer" and first in self.case.recorded.arrays:
            self._array(name, self.case.recorded.arrays[first])
        elif self.case.given["run"] == "blob":
            self.findings.value("arrays", f"no {name}", name)


def _shown(path: Path) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).lstrip(".")
