"""Kind ``filler``: filled parameters and DummyData tops (FORMAT-filler.md)."""

from __future__ import annotations

from typing import Any

from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.outcome import Findings, Unsupported


def play(case: Case, engine: Engine) -> Recording:
    """The fills of ``given.fills``, out of one stream; ``values["fatal"]`` where one is refused."""
    if case.given["tops"]:
        raise Unsupported("tops of a whole net")
    got = Recording()
    fills = case.given["fills"]
    stream = engine.stream(case.seed or 0)
    step = "setup"
    try:
        fillers = [engine.filler(fill["filler"]) for fill in fills]
        for i in sorted(range(len(fills)), key=lambda i: _pass(fills[i])):
            step = "setup" if _pass(fills[i]) < 0 else f"forward {_pass(fills[i])}"
            values = fillers[i](fills[i]["shape"], stream)
            if not fills[i].get("discarded"):
                got.arrays[f"fill.{i}"] = values
    except engine.Fatal as fatal:
        got.values["fatal"] = {"step": step, "message": fatal.message}
    return got


def _pass(fill: dict[str, Any]) -> int:
    """The forward pass in which a fill happens; -1: when the net is built, as parameters and constant tops are."""
    constant = fill["filler"].get("type", "constant") == "constant"
    return -1 if constant or "layer" in fill else fill["forward"]


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Everything is bitwise; a refusal is compared by FORMAT-error.md."""
    recorded = case.recorded
    refused, refusal = recorded.values.get("fatal"), got.values.get("fatal")
    if refused and refusal:
        findings.value("fatal.step", refused["step"], refusal["step"])
        findings.message("fatal.message", refused["message"], refusal["message"])
    elif refused or refusal:
        findings.value("fatal", refused, refusal)
    else:
        findings.arrays(recorded.arrays, got.arrays)
