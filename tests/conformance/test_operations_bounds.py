"""The bounds of nets and trajectories, and the comparison of log lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.cases import read_case
from conformance.operations.logs import canonical, judge_log
from conformance.operations.spread import SPREAD_FACTOR, SPREAD_ULPS, Spread, ulp
from conformance.outcome import Findings


def test_a_bound_is_a_multiple_of_the_spread_and_some_ulps(make_case: Callable[..., Path]) -> None:
    spread = {"arrays": {"a": 1e-5}, "loss": {"run": 1e-6}}
    found = Spread(read_case(make_case("net/a/b", recorded={"spread": spread})))
    array = np.array([1, -3, np.inf], np.float32)
    assert found.bound("a", array) == SPREAD_FACTOR * 1e-5 + SPREAD_ULPS * 2.0**-22
    assert found.bound("b", array) == SPREAD_ULPS * 2.0**-22
    assert found.bound("b", np.zeros(0)) > 0
    assert found.loss_bound("run", 1.5) == SPREAD_FACTOR * 1e-6 + SPREAD_ULPS * 2.0**-23
    assert found.relative({"run/loss": array}) == SPREAD_ULPS * 2.0**-23


def test_ulps_are_of_single_precision() -> None:
    assert ulp([1.0, -2.0, 0.75]).tolist() == [2.0**-23, 2.0**-22, 2.0**-24]


def test_digest_bounds(make_case: Callable[..., Path]) -> None:
    folder = make_case("net/a/b")
    moved = {"stats": np.zeros((2, 5)), "first": np.zeros((2, 16)), "strided": np.zeros((2, 16))}
    moved["stats"][1, 0] = 1e-3  # the second array's sum moved
    moved["first"][1, 3] = 1e-4  # and one of its elements
    np.savez(folder / "spread.npz", **{f"run/blob/{key}": array for key, array in moved.items()})
    recorded = {"stats": np.array([[2.0, 4, 8, -1, 1]] * 2), "first": moved["first"], "strided": moved["strided"]}
    spread = Spread(read_case(folder))
    exact = spread.digest_bounds("run/blob", [10, 10], recorded, bitwise=True)
    assert not exact["first"].any() and 0 < exact["stats"][0, 0] < 1e-13
    bounds = spread.digest_bounds("run/blob", [10, 10], recorded, bitwise=False)
    small = SPREAD_ULPS * 2.0**-23
    assert bounds["first"][0, 0] == small
    assert bounds["first"][1, 5] == pytest.approx(SPREAD_FACTOR * 1e-4 + small)
    assert bounds["stats"][0, 1] == pytest.approx(10 * small + 10**0.5 * small)
    element = SPREAD_FACTOR * 1e-4 + small
    assert bounds["stats"][1, 1] == pytest.approx(SPREAD_FACTOR * 1e-3 + 10 * small + 10**0.5 * element)
    squares = 8 * SPREAD_FACTOR * 1e-3 / 4 + 4 * small + 8**0.5 * element
    assert bounds["stats"][1, 2] == pytest.approx(2 * squares)


def test_measured_times_are_taken_out() -> None:
    text = "Iteration 0 (3.5e+06 iter/s, 0.01s/10 iters), loss = 2 "
    assert canonical(text) == "Iteration 0 (<R> iter/s, <T>s/10 iters), loss = 2"


def line(text: str, op: int = 1, source: str = "I solver.cpp") -> list[Any]:
    return [op, source, text]


@pytest.mark.parametrize(
    ("recorded", "got", "same"),
    [
        ("loss = 1.70037", "loss = 1.70038", True),
        ("loss = 1.70037", "loss = 1.7004", False),
        ("loss = 9.99999", "loss = 10", True),
        ("loss = 1", "loss = 0.999999", True),
        ("loss = 1e-07", "loss = 1.00001e-07", True),
        ("loss = 1e-07", "loss = 1.1e-07", False),
        ("loss = -0.5", "loss = 0.5", False),
        ("loss = 0", "loss = 1e-09", False),
        ("accuracy = 1", "accuracy = 2", False),
        ("Iteration 10, loss = 0.5", "Iteration 11, loss = 0.5", False),
        ("output #0: a = 0.25 (* 1 = 0.25 loss)", "output #0: a = 0.25 (* 1 = 0.25 loss)", True),
        ("snap_iter_3.caffemodel", "snap_iter_4.caffemodel", False),
        ("Top shape: 2 3 (6)", "Top shape: 3 2 (6)", False),
        ("loss = nan", "loss = 0.5", False),
    ],
)
def test_lines_of_log(recorded: str, got: str, same: bool) -> None:
    findings = Findings()
    judge_log([line(recorded)], [line(got)], 1e-6, findings)
    assert (findings.count == 0) is same


@pytest.mark.parametrize("got", [[], [line("a"), line("b")], [line("a", 2)], [line("a", source="W solver.cpp")]])
def test_lines_missing_added_or_from_elsewhere(got: list[Any]) -> None:
    findings = Findings()
    judge_log([line("a")], got, 1e-6, findings)
    assert findings.count == 1
