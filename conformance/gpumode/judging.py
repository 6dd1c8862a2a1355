"""Comparing what was recorded in GPU mode: heads and copies exactly, numbers by their class."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.gpumode.limits import Limits
from conformance.outcome import Findings

_NOT_OURS = ("alloc", "launches", "exactness", "differs_from_cpu_mode", "draws")
_NUMBERS = ("loss", "loss_blob", "value")


def draws_of(case: Case) -> list[str]:
    """The names of the arrays that the device's generator gave, in order."""
    if "draws" in case.recorded.values:
        return case.recorded.values["draws"]
    return sorted((name for name in case.recorded.arrays if name.startswith("draw")), key=lambda name: int(name[4:]))


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Compare a run."""
    limits = Limits(case)
    draws = [case.recorded_array(name) for name in draws_of(case)]
    findings.value("draws", [[str(draw.dtype), draw.size] for draw in draws], got.values.pop("drawn"))
    _judge_values("", case.recorded.values, got.values, limits, findings)
    for name, recorded in case.recorded.arrays.items():
        if name in draws_of(case):
            continue
        array = got.arrays.get(name)
        if array is None:
            findings.value("arrays", name, f"no {name}")
        else:
            findings.array(name, recorded, array, limits.exactness(name), limits.of(name))
    for name, array in got.arrays.items():
        if name not in case.recorded.arrays:
            _judge_unrecorded(case, name, array, got, limits, findings)


def _judge_unrecorded(
    case: Case, name: str, array: np.ndarray, got: Recording, limits: Limits, findings: Findings
) -> None:
    """An array of iteration 1 is not recorded where it is that of iteration 0, to the bit."""
    first = "i0" + name.removeprefix("i1")
    if name.startswith("i1") and case.given["run"] == "layer" and first in case.recorded.arrays:
        findings.array(name, case.recorded.arrays[first], array, limits.exactness(name), limits.of(first))
    elif case.given["run"] == "blob" or not np.any(array):
        findings.value("arrays", f"no {name}", name)


def _judge_values(where: str, recorded: Any, got: Any, limits: Limits, findings: Findings) -> None:
    """All but what is only there to be read; copies as multisets, computed numbers within their bounds."""
    if isinstance(recorded, dict) and isinstance(got, dict):
        keys = [key for key in recorded if key not in _NOT_OURS]
        findings.value(f"{where}: entries", sorted(keys), sorted(got))
        for key in keys:
            if key in got:
                _judge_entry(f"{where}.{key}".lstrip("."), key, recorded[key], got[key], limits, findings)
    elif isinstance(recorded, list) and recorded and isinstance(recorded[0], dict):
        findings.value(f"{where}: number", len(recorded), len(got))
        for i, (a, b) in enumerate(zip(recorded, got)):
            _judge_values(f"{where}[{a.get('layer', i)}]", a, b, limits, findings)
    else:
        findings.value(where, recorded, got)


def _judge_entry(where: str, key: str, recorded: Any, got: Any, limits: Limits, findings: Findings) -> None:
    if key in ("copies", "prefetch_copies"):
        findings.value(where, *(sorted(side, key=str) for side in (recorded, got)))
    elif key in _NUMBERS:
        values = [np.asarray(np.nan if side is None else side, np.float32) for side in (recorded, got)]
        findings.array(where, *values, limits.number_class, limits.of_number(where, recorded))
    else:
        _judge_values(where, recorded, got, limits, findings)
