"""Kind ``solver``: training (FORMAT-solver.md), end to end and step by step from recorded states."""

from __future__ import annotations

from conformance import operations
from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.operations import judge

__all__ = ["judge", "play"]


def play(case: Case, engine: Engine) -> Recording:
    """The run; ``values["guided"]`` is the same one with each iteration led from the recorded state."""
    got = operations.play(case, engine)
    refused = "fatal" in got.values or "exception" in got.values
    if operations.trained(case) and not refused:
        guided = got.values["guided"] = operations.play(case, engine, guided=True)
        if got.values.get("clips"):
            guided.values["shaken"] = operations.play(case, engine, guided=True, shaken=True)
    return got
