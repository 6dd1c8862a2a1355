"""Reports of a run: a table per kind and the failed cases for people, JSON for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.cases import provenance
from conformance.compare import BLAS_FACTOR, LIBM_ULPS, Closeness
from conformance.operations.spread import SPREAD_FACTOR, SPREAD_ULPS
from conformance.outcome import Outcome, Status, as_numbers

CLASSES = ("bitwise", "libm", "blas", "trajectory", "printed")  # in this order where present


@dataclass
class KindSummary:
    """Counts of one kind, and per exactness class what came nearest to its bound."""

    cases: int = 0
    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    worst: dict[str, tuple[Closeness, str]] = field(default_factory=dict)  # with the case's name

    def add(self, outcome: Outcome) -> None:
        self.cases += 1
        setattr(self, outcome.status.value, getattr(self, outcome.status.value) + 1)
        for name, near in outcome.worst.items():
            if name not in self.worst or near.ratio > self.worst[name][0].ratio:
                self.worst[name] = near, outcome.name

    def classes(self) -> list[str]:
        return sorted(
            self.worst, key=lambda name: (CLASSES.index(name) if name in CLASSES else len(CLASSES), name)
        )


def summarize(outcomes: Iterable[Outcome]) -> dict[str, KindSummary]:
    """One summary per kind, in order of the kinds' names."""
    kinds: dict[str, KindSummary] = {}
    for outcome in outcomes:
        kinds.setdefault(outcome.kind, KindSummary()).add(outcome)
    return dict(sorted(kinds.items()))


def one_line(outcomes: list[Outcome]) -> str:
    """``189 of 189 cases equal``, and what is not."""
    count = {status: sum(outcome.status is status for outcome in outcomes) for status in Status}
    text = f"{count[Status.PASSED]} of {len(outcomes)} cases equal, {count[Status.FAILED]} failed"
    if count[Status.UNSUPPORTED]:
        text += f", {count[Status.UNSUPPORTED]} not yet supported"
    return text


def print_report(console: Console, outcomes: list[Outcome], engine: dict[str, str], seconds: float) -> None:
    """The table, then every failed case with its first differences, what is unsupported and why, and one line."""
    console.print(_table(outcomes))
    for outcome in outcomes:
        if outcome.status is Status.FAILED:
            console.print(escape(str(outcome)), highlight=False, soft_wrap=True)
    reasons: dict[str, int] = {}
    for outcome in outcomes:
        if outcome.status is Status.UNSUPPORTED:
            reasons[outcome.reason] = reasons.get(outcome.reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        console.print(f"not yet supported: {escape(reason)} ({count} cases)", highlight=False, soft_wrap=True)
    ran_on = ", ".join(f"{key} {value}" for key, value in engine.items())
    console.print(
        f"{one_line(outcomes)} ({seconds:.1f} s; {escape(ran_on)})", highlight=False, soft_wrap=True
    )


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="Conformance with original Caffe", title_justify="left")
    table.add_column("kind")
    for title in ("cases", "equal"):
        table.add_column(title, justify="right")
    table.add_column("largest error (bound)")
    for title in ("failed", "not yet supported"):
        table.add_column(title, justify="right")
    for kind, summary in summarize(outcomes).items():
        errors = "\n".join(_error_text(name, summary.worst[name][0]) for name in summary.classes())
        counts = summary.cases, summary.passed, summary.failed, summary.unsupported
        cases, passed, failed, unsupported = map(str, counts)
        style = "red" if summary.failed else "yellow" if summary.unsupported else "green"
        table.add_row(kind, cases, passed, errors or "–", failed, unsupported, style=style)
    return table


def _error_text(exactness: str, near: Closeness) -> str:
    if near.error == 0:
        return f"{exactness} 0"
    share = f", {near.ratio:.0%}" if math.isfinite(near.ratio) else ""
    return f"{exactness} {near.error:.2g} ({near.bound:.2g}{share})"


def as_json(
    outcomes: list[Outcome], engine: dict[str, str], fixtures: Path, seconds: float
) -> dict[str, Any]:
    """The whole report as JSON values."""
    return {
        "format": 1,
        "summary": one_line(outcomes),
        "engine": engine,
        "recorded_from": provenance(fixtures),
        "bounds": {
            "blas_factor": BLAS_FACTOR,
            "libm_ulps": LIBM_ULPS,
            "spread_factor": SPREAD_FACTOR,
            "spread_ulps": SPREAD_ULPS,
        },
        "seconds": round(seconds, 3),
        "kinds": {
            kind: {
                "cases": summary.cases,
                "equal": summary.passed,
                "failed": summary.failed,
                "unsupported": summary.unsupported,
                "worst": {
                    name: as_numbers(near) | {"case": case}
                    for name, (near, case) in sorted(summary.worst.items())
                },
            }
            for kind, summary in summarize(outcomes).items()
        },
        "cases": [outcome.as_json() for outcome in outcomes],
    }
