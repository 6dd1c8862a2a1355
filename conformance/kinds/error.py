"""Kind ``error``: bad input (FORMAT-error.md). Where the original's process ended, the engine refuses and goes on."""

from __future__ import annotations

import signal

import numpy as np

from conformance.cases import Case, Recording
from conformance.operations import play
from conformance.operations.spread import SPREAD_ULPS, ulp
from conformance.outcome import Findings

__all__ = ["judge", "play"]


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Which operation refuses what, in which words. Where the original divided by zero anything orderly is right."""
    recorded = case.recorded.values
    findings.value("threads left over", [], got.values.get("threads", []))
    if recorded.get("signal") == signal.SIGFPE:
        return
    fatal, refusal = recorded.get("fatal"), got.values.get("fatal")
    if fatal and refusal:
        for key in ("op", "file"):
            findings.value(f"fatal.{key}", fatal[key], refusal[key])
        findings.message("fatal.message", fatal["message"], refusal["message"])
    else:
        findings.value("fatal", fatal, refusal)
    findings.value("exception", recorded.get("exception") or [], got.values.get("exception", []))
    for key in ("errors", "parser"):
        findings.value(key, recorded.get(key) or [], got.values.get(key, []))
    for name, loss in (recorded.get("loss") or {}).items():
        own = np.array(got.values.get("loss", {}).get(name, np.nan), np.float32)
        findings.array(f"loss.{name}", np.array(loss, np.float32), own, "blas", SPREAD_ULPS * float(ulp(loss)))
