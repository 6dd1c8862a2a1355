"""What became of a case, and the collector that a runner's ``judge`` reports to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np

from conformance.compare import Closeness, Difference, compare_arrays, compare_values, same_message, sum_bound
from conformance.device_formulas import Effect, Leniency

KEPT = 5  # differences of one case that are kept for the report; all are counted


class Unsupported(Exception):
    """The engine, or the suite, cannot do this case yet. The message says what is missing."""


class Status(str, Enum):
    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"


class Findings:
    """Collects the comparisons of one case: how many, the first differences, and the nearest to its bound per class.

    ``lenient`` says what may differ since the case ran on another device than it was recorded on.
    """

    def __init__(self, lenient: Leniency | None = None) -> None:
        self.lenient = lenient or Leniency()
        self.comparisons = 0
        self.count = 0
        self.differences: list[Difference] = []
        self.worst: dict[str, Closeness] = {}

    def differ(self, where: str, recorded: Any, got: Any) -> None:
        """Report a difference that the runner found itself."""
        self._add(Difference(where, str(recorded), str(got)))

    def _add(self, difference: Difference | None) -> None:
        if difference is None:
            return
        self.count += 1
        if len(self.differences) < KEPT:
            self.differences.append(difference)

    def value(self, where: str, recorded: Any, got: Any) -> None:
        """Compare two JSON values, exactly."""
        self.comparisons += 1
        self.worst.setdefault("bitwise", Closeness("bitwise"))
        self._add(compare_values(where, recorded, got))

    def message(self, where: str, recorded: str, got: str) -> None:
        """Compare the messages of two refusals by the rule of FORMAT-error.md."""
        self.comparisons += 1
        if not same_message(recorded, got):
            self.differ(where, repr(recorded), repr(got))

    def array(
        self,
        where: str,
        recorded: np.ndarray,
        got: Any,
        exactness: str = "bitwise",
        bound: np.ndarray | float | Callable[[], np.ndarray | float] = 0.0,
        signed_zeros: bool = True,
    ) -> None:
        """Compare two arrays (``compare_arrays``). A costly ``bound`` may be a function, which is called if needed."""
        self.comparisons += 1
        signed_zeros &= not self.lenient.allows(Effect.ZEROS, where)
        if self.lenient.allows(Effect.VALUES, where) and _same_kind(recorded, got):
            return
        if not callable(bound) and not np.any(bound) and self.lenient.allows(Effect.ROUNDING, where):
            exactness, bound = "blas", sum_bound(recorded)
        if self.lenient.device == "cuda":
            exactness, bound = "blas" if exactness == "bitwise" else exactness, self._on_cuda(bound, recorded)
        near = compare_arrays(where, recorded, got, exactness, 0.0, signed_zeros)
        if near.difference is not None and (callable(bound) or np.any(np.asarray(bound) > 0)):
            limit = bound() if callable(bound) else bound
            near = compare_arrays(where, recorded, got, exactness, limit, signed_zeros)
        self._add(near.difference)
        if exactness not in self.worst or near.ratio > self.worst[exactness].ratio:
            self.worst[exactness] = near

    def _on_cuda(self, bound: Any, recorded: np.ndarray) -> Callable[[], np.ndarray | float]:
        least = sum_bound(recorded, self.lenient.ulps)
        return lambda: np.maximum(bound() if callable(bound) else bound, least)

    def arrays(self, recorded: dict[str, np.ndarray], got: dict[str, np.ndarray]) -> None:
        """Compare two sets of arrays bit for bit, by their names."""
        for name in [*recorded, *(name for name in got if name not in recorded)]:
            if name in recorded and name in got:
                self.array(name, recorded[name], got[name])
            else:
                self.value("arrays", *(name if name in side else f"no {name}" for side in (recorded, got)))


def _same_kind(recorded: np.ndarray, got: Any) -> bool:
    got = np.asarray(got)
    return recorded.shape == got.shape and recorded.dtype == got.dtype


@dataclass(frozen=True)
class Outcome:
    """One case's result. ``worst``: by exactness class the array that came nearest to its bound."""

    kind: str
    name: str
    status: Status
    reason: str = ""
    differences: list[Difference] = field(default_factory=list)
    count: int = 0
    comparisons: int = 0
    worst: dict[str, Closeness] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def group(self) -> str:
        """Layer type, solver or feature: the first part of the name."""
        return self.name.partition("/")[0]

    def __str__(self) -> str:
        lines = [f"{self.id}: {self.status.value}" + (f": {self.reason}" if self.reason else "")]
        lines += [f"  {difference}" for difference in self.differences]
        if self.count > len(self.differences):
            lines.append(f"  … and {self.count - len(self.differences)} more differences")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The outcome for a JSON report. An error without limit is null."""
        return {
            "case": self.id,
            "status": self.status.value,
            "reason": self.reason,
            "comparisons": self.comparisons,
            "differences": self.count,
            "first": [vars(difference) for difference in self.differences],
            "worst": {name: as_numbers(near) for name, near in sorted(self.worst.items())},
            "seconds": round(self.seconds, 4),
        }


def as_numbers(near: Closeness) -> dict[str, Any]:
    """A Closeness for a JSON report: error, bound, their ratio, and where."""
    numbers = {"error": near.error, "bound": near.bound, "ratio": near.ratio}
    return {key: x if math.isfinite(x) else None for key, x in numbers.items()} | {"where": near.where}
