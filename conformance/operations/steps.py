"""Comparing what Step and Solve record: a whole trajectory, or step by step from recorded states."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.compare import LIBM_ULPS, libm_bound
from conformance.operations.rows import RowNames
from conformance.operations.spread import Spread, ulp
from conformance.outcome import Findings

FIRST_LOSS = 1e-6
"""Relative: the loss of iteration 0, where nothing has been learnt and nothing has drifted."""

_WITH_POWF = ("AdaGrad", "RMSProp", "AdaDelta", "Adam")
_POWF = 2 * LIBM_ULPS["pow"] * 2.0**-23
"""Relative, of an update: that of the root in it, and as much for what is divided and multiplied afterwards."""


def judge_rows(case: Case, name: str, got: Recording, findings: Findings, guided: bool) -> None:
    """Compare the rows of one operation.

    Without a guide everything behind the first loss is compared as a trajectory (class ``trajectory``): its error is
    the run's drift. Guided, each row starts from the recorded one: losses and gradients are one pass of BLAS off,
    and from the recorded gradients and rate the update must come out bit for bit.
    """
    recorded, rows = RowNames(name, case.recorded.arrays), RowNames(name, got.arrays)
    label = f"from recorded states: {name}" if guided else name
    findings.value(f"{label}: arrays", sorted(recorded.arrays), sorted(rows.arrays))
    spread = Spread(case)
    given = guided and bool(recorded.many("grad"))
    for key in recorded.arrays:
        if key not in rows.arrays:
            continue
        expected, array, where = recorded.arrays[key], rows.arrays[key], f"{label}/{key}"
        what = key.partition("/")[0]
        if what in ("iter", "current_step", "param_iter"):
            findings.array(where, expected, array)
        elif what == "lr":
            findings.array(where, expected, array, "libm", libm_bound("pow", expected))
        elif what in ("param", "history") and given and not _moved(key, name, got):
            bound = _update_bound(recorded, key, name, got)
            if "param_iter" in recorded.arrays and np.any(bound):
                bound = spread.bound(f"{name}/{key}", expected)  # several updates lie between two rows
            findings.array(where, expected, array, "libm" if np.any(bound) else "bitwise", bound)
        else:
            bound = np.full(expected.shape, spread.bound(f"{name}/{key}", expected))
            if what == "loss" and len(expected) and recorded.arrays["iter"][0] == 0:
                bound[0] = min(bound[0], FIRST_LOSS * abs(float(expected[0])))
            findings.array(where, expected, array, "blas" if guided else "trajectory", bound)
    if not guided and not recorded.many("grad"):
        _judge_start(recorded, name, got, findings)


def _moved(key: str, name: str, got: Recording) -> bool:
    """Whether a parameter is changed by a forward pass: then the row before and the gradient do not say what it is."""
    what, _, k = key.partition("/")
    return what == "param" and int(k) in got.values.get("moved", {}).get(name, ())


def _judge_start(recorded: RowNames, name: str, got: Recording, findings: Findings) -> None:
    """Without gradients: whether SGD's first recorded update leads from our first weights to the recorded ones."""
    state = got.values.get("solver_state", {}).get(name, {})
    first = recorded.iterations("param")[:1]
    if state.get("type") != "SGD" or not first or first != recorded.iterations()[:1]:
        return
    for k, (param, history) in enumerate(zip(recorded.many("param"), recorded.many("history"))):
        start = got.values.get("initial", {}).get(f"{name}/{k}")
        if start is not None:
            findings.array(f"{name}: first weights {k}, less the first update", param[0], start - history[0])


def _update_bound(recorded: RowNames, key: str, name: str, got: Recording) -> np.ndarray | float:
    """0 where the update is element by element; else what powf, and the norm that clips gradients, may be off.

    What the norm does is seen from a run with a limit that is off by as much (``values["shaken"]``). Of the histories
    only AdaDelta's second half comes from a root.
    """
    values = recorded.arrays[key]
    if not values.size:
        return 0.0
    bound = np.zeros(values.shape)
    shaken = got.values["shaken"].arrays if "shaken" in got.values else got.arrays
    pair = [arrays[f"{name}/{key}"].astype(np.float64) for arrays in (shaken, got.arrays)]
    if pair[0].shape == pair[1].shape == bound.shape:
        bound += abs(pair[0] - pair[1])
    solver_type = got.values.get("solver_state", {}).get(name, {}).get("type")
    what, _, number = key.partition("/")
    if what == "param" and solver_type in _WITH_POWF:
        start = got.values.get("initial", {}).get(f"{name}/{number}", values[0])
        bound += _POWF * abs(values - _before(values, start)).astype(np.float64)
    elif solver_type == "AdaDelta" and int(number) >= len(recorded.many("param")):
        bound += 2 * _POWF * (values + _before(values, values[0])).astype(np.float64)
    return np.where(bound > 0, bound + ulp(values), 0.0)


def _before(values: np.ndarray, first: Any) -> np.ndarray:
    """The row before of each row."""
    return np.concatenate([np.asarray(first, values.dtype)[None], values[:-1]])
