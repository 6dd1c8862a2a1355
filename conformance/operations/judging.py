"""Comparing what operations recorded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.compare import libm_bound
from conformance.operations import files, steps
from conformance.operations.logs import judge_log
from conformance.operations.spread import Spread
from conformance.operations.world import TRAINING
from conformance.outcome import Findings, Unsupported

_EXACT = ("info", "shapes", "events", "returned", "kept", "tool_exit", "py_param", "solver_param", "compare", "decoded")
_OTHERS = ("loss", "lr", "solver_state", "log", "files", "digests", "spread")


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Compare a run; and, in ``got.values["guided"]``, the same run led from recorded state to recorded state."""
    unknown = case.recorded.values.keys() - {*_EXACT, *_OTHERS}
    if unknown:
        raise Unsupported(f"the suite cannot compare recorded.{sorted(unknown)[0]}")
    findings.value("threads left over", [], got.values.get("threads", []))
    if not _ended_well(got, findings, ""):
        return
    recorded = case.recorded.values
    for section in _EXACT:
        if section in recorded:
            findings.value(section, recorded[section], got.values.get(section))
    _judge_numbers(case, got, findings)
    if "log" in recorded:
        relative = Spread(case).relative(case.recorded.arrays)
        judge_log(recorded["log"], got.values.get("log", []), relative, findings)
    _judge_files(case, got, findings, "")
    _judge_kept(case, got, findings, "")
    _judge_arrays(case, got, findings, guided=False)
    guided = got.values.get("guided")
    if guided is not None and _ended_well(guided, findings, "from recorded states: "):
        _judge_files(case, guided, findings, "from recorded states: ")
        _judge_kept(case, guided, findings, "from recorded states: ")
        _judge_arrays(case, guided, findings, guided=True)


def _ended_well(got: Recording, findings: Findings, label: str) -> bool:
    for section in ("fatal", "exception"):
        findings.value(label + section, None, got.values.get(section))
    return "fatal" not in got.values and "exception" not in got.values


def trained(case: Case) -> set[str]:
    """The names of the recordings of training."""
    return {op["as"] for op in case.given["ops"] if op["op"] in TRAINING}


def _is_exact(case: Case, got: Recording, name: str) -> bool:
    """Whether no rounding of BLAS had reached parameters when ``name`` was recorded."""
    return got.values.get("exact", {}).get(name, not trained(case))


def stated_class(case: Case, name: str, exact: bool) -> str:
    """``bitwise``, ``libm`` or ``blas``: what the case's table says of an array.

    A key of the table is a part of the array's name, or several with commas between them. What is ``bitwise given``
    something else is so only if that came to it exactly.
    """
    table = case.document.get("exactness", {})
    parts = name.split("/")
    found = [text for key, text in table.items() if any(part.strip() in parts for part in key.split(","))]
    sentence = found[0] if found else table.get("*", "bitwise")
    word = sentence.replace(":", " ").replace(",", " ").split()[0]
    return "blas" if word == "bitwise" and " given " in sentence and not exact else word


def _bound(spread: Spread, name: str, recorded: np.ndarray, stated: str) -> Any:
    if stated == "bitwise":
        return 0.0
    return libm_bound("default", recorded) if stated == "libm" else spread.bound(name, recorded)


def _judge_numbers(case: Case, got: Recording, findings: Findings) -> None:
    """Numbers of case.json that were computed."""
    recorded, spread = case.recorded.values, Spread(case)
    for section in ("loss", "lr", "solver_state", "digests"):
        if section in recorded:
            findings.value(section, sorted(recorded[section]), sorted(got.values.get(section, {})))
    for name, loss in recorded.get("loss", {}).items():
        stated = stated_class(case, "loss", exact=True)
        bound = 0.0 if stated == "bitwise" else spread.loss_bound(name, loss)
        _number(f"loss.{name}", loss, got.values.get("loss", {}).get(name), stated, bound, findings)
    for name, rate in recorded.get("lr", {}).items():
        bound = float(libm_bound("pow", np.array(rate, np.float32)))
        _number(f"lr.{name}", rate, got.values.get("lr", {}).get(name), "libm", bound, findings)
    for name, state in recorded.get("solver_state", {}).items():
        _judge_state(name, state, got.values.get("solver_state", {}).get(name, {}), spread, findings)


def _number(where: str, recorded: float, got: float | None, exactness: str, bound: float, findings: Findings) -> None:
    if got is not None:
        findings.array(where, np.array(recorded, np.float32), np.array(got, np.float32), exactness, bound)


def _judge_state(
    name: str, recorded: dict[str, Any], state: dict[str, Any], spread: Spread, findings: Findings
) -> None:
    """One solver state: all exact but the losses. A smoothed loss of no losses is memory that nobody wrote."""
    where = f"solver_state.{name}"
    computed = ("losses", "smoothed_loss")
    exact = ({key: value for key, value in side.items() if key not in computed} for side in (recorded, state))
    findings.value(where, *exact)
    findings.value(f"{where}: number of losses", len(recorded["losses"]), len(state.get("losses", ())))
    losses = recorded["losses"]
    if losses and len(losses) == len(state["losses"]):
        for key, array in {"losses": "loss", "smoothed_loss": "smoothed_loss"}.items():
            values, own = (np.array(side[key], np.float32) for side in (recorded, state))
            findings.array(f"{where}.{key}", values, own, "trajectory", spread.bound(f"{name}/{array}", values))


def _judge_files(case: Case, got: Recording, findings: Findings, label: str) -> None:
    """Names of written files; sizes and bytes of those that are not HDF5, bytes only if the parameters are exact."""
    recorded = case.recorded.values.get("files")
    if recorded is None:
        return
    exact = _is_exact(case, got, "files")
    shown = [_comparable(side.get("files", {}), exact) for side in (recorded, got.values.get("files", {}))]
    findings.value(f"{label}files", *shown)


def _comparable(listed: dict[str, dict[str, Any]], exact: bool) -> dict[str, dict[str, Any]]:
    keys = ("size", "sha256") if exact else ("size",)
    return {
        name: {} if files.is_hdf5(name) else {key: entry[key] for key in keys if key in entry}
        for name, entry in sorted(listed.items())
    }


def _judge_kept(case: Case, got: Recording, findings: Findings, label: str) -> None:
    """Written files against those in ``out/``, if they are exact: HDF5 by what it holds, others by their bytes."""
    if not _is_exact(case, got, "kept"):
        return
    for name, data in got.values.get("kept_bytes", {}).get("kept", {}).items():
        path = case.folder / name
        if not path.is_file():
            raise CaseError(f"{path}: is not there, but case.json says it is kept")
        if files.is_hdf5(name):
            (tree, arrays), (own_tree, own_arrays) = (files.read_hdf5(side) for side in (path.read_bytes(), data))
            findings.value(label + name, tree, own_tree)
            findings.arrays(*({f"{label}{name}:{key}": a for key, a in side.items()} for side in (arrays, own_arrays)))
        else:
            findings.array(label + name, np.frombuffer(path.read_bytes(), np.uint8), np.frombuffer(data, np.uint8))


def _judge_arrays(case: Case, got: Recording, findings: Findings, guided: bool) -> None:
    rows, spread = trained(case), Spread(case)
    label = "from recorded states: " if guided else ""
    digests = [] if guided else list(case.recorded.values.get("digests", {}))
    for name in sorted(rows):
        steps.judge_rows(case, name, got, findings, guided)
    for prefix in digests:
        _judge_digest(case, prefix, got, spread, findings)
    done = tuple(f"{name}/" for name in [*rows, *digests])
    names = [[name for name in side.arrays if not name.startswith(done)] for side in (case.recorded, got)]
    if not guided:
        findings.value("arrays", sorted(names[0]), sorted(names[1]))
    for name in names[0]:
        if name in got.arrays:
            recorded = case.recorded.arrays[name]
            stated = stated_class(case, name, _is_exact(case, got, name.partition("/")[0]))
            bound = _bound(spread, name, recorded, stated)
            shown = "trajectory" if stated == "blas" and rows and not guided else stated
            findings.array(label + name, recorded, got.arrays[name], shown, bound)


def _judge_digest(case: Case, prefix: str, got: Recording, spread: Spread, findings: Findings) -> None:
    digest = case.recorded.values["digests"][prefix]
    own = got.values.get("digests", {}).get(prefix)
    findings.value(f"digests.{prefix}", digest, own)
    if own is None or own["shapes"] != digest["shapes"]:
        return
    stated = stated_class(case, prefix, exact=True)
    counts = [math.prod(shape) for shape in digest["shapes"]]
    recorded = {key: case.recorded_array(f"{prefix}/{key}") for key in ("stats", "first", "strided")}
    bounds = spread.digest_bounds(prefix, counts, recorded, stated == "bitwise")
    for key, array in recorded.items():
        findings.array(f"{prefix}/{key}", array, got.arrays[f"{prefix}/{key}"], stated, bounds[key])
