"""What a report shows: outcomes counted per kind and per group, and what surrounds them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from conformance.cases import Case, provenance
from conformance.compare import Closeness
from conformance.outcome import Outcome, Status

CLASSES = ("bitwise", "libm", "blas", "codec", "trajectory", "printed")  # in this order where present


@dataclass
class Summary:
    """Counts of some outcomes, and per exactness class what came nearest to its bound."""

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
        return in_order(self.worst)

    @property
    def status(self) -> Status:
        """The worst of its outcomes."""
        return Status.FAILED if self.failed else Status.UNSUPPORTED if self.unsupported else Status.PASSED


def in_order(classes: Iterable[str]) -> list[str]:
    """Exactness classes in the order of reports."""
    return sorted(classes, key=lambda name: (CLASSES.index(name) if name in CLASSES else len(CLASSES), name))


def summarize(
    outcomes: Iterable[Outcome], key: Callable[[Outcome], str] = lambda outcome: outcome.kind
) -> dict[str, Summary]:
    """One summary per kind, or per whatever ``key`` gives, in order of their names."""
    found: dict[str, Summary] = {}
    for outcome in outcomes:
        found.setdefault(key(outcome), Summary()).add(outcome)
    return dict(sorted(found.items()))


def one_line(outcomes: Sequence[Outcome]) -> str:
    """``189 of 189 cases equal``, and what is not."""
    count = Counter(outcome.status for outcome in outcomes)
    text = f"{count[Status.PASSED]} of {len(outcomes)} cases equal, {count[Status.FAILED]} failed"
    if count[Status.UNSUPPORTED]:
        text += f", {count[Status.UNSUPPORTED]} not yet supported"
    return text


@dataclass(frozen=True)
class Report:
    """A run: its outcomes, what ran them, and what they were compared with.

    ``engine``, ``environment``: names and versions. ``recorded_from``: provenance.json. ``upstreams``: per kind how
    many cases were recorded from which of its Caffes. ``seconds``: how long it took.
    """

    outcomes: list[Outcome]
    engine: dict[str, str]
    recorded_from: dict[str, Any] = field(default_factory=dict)
    upstreams: dict[str, Counter[str]] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(timezone.utc).replace(microsecond=0))
    seconds: float = 0.0

    @classmethod
    def of(cls, cases: Sequence[Case], outcomes: list[Outcome], fixtures: Path, **rest: Any) -> Report:
        """Look up the provenance of cases; ``rest``: the other fields."""
        upstreams: dict[str, Counter[str]] = {}
        for case in cases:
            if not case.problem:
                upstreams.setdefault(case.kind, Counter())[case.upstream] += 1
        return cls(outcomes, recorded_from=provenance(fixtures), upstreams=upstreams, **rest)

    @property
    def summary(self) -> str:
        return one_line(self.outcomes)

    def of_status(self, status: Status) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.status is status]

    def recorded_counts(self) -> dict[str, int]:
        """How many cases were recorded from which Caffe, by the keys of provenance.json."""
        return dict(sorted(sum(self.upstreams.values(), Counter()).items()))

    def reasons(self) -> dict[str, list[Outcome]]:
        """Why cases are not yet supported, in order."""
        found: dict[str, list[Outcome]] = {}
        for outcome in self.of_status(Status.UNSUPPORTED):
            found.setdefault(outcome.reason, []).append(outcome)
        return dict(sorted(found.items()))

    def groups(self, kind: str) -> dict[str, Summary]:
        """One summary per group of a kind."""
        return summarize((x for x in self.outcomes if x.kind == kind), lambda outcome: outcome.group)
