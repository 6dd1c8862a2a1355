"""The report as JSON."""

from __future__ import annotations

from typing import Any

from conformance.compare import BLAS_FACTOR, LIBM_ULPS
from conformance.images import CODEC_LEVELS, RESIZE_LEVELS
from conformance.operations.spread import SPREAD_FACTOR, SPREAD_ULPS
from conformance.outcome import as_numbers
from conformance.report.summary import Report, Summary, summarize

BOUNDS = {
    "blas_factor": BLAS_FACTOR,
    "libm_ulps": LIBM_ULPS,
    "spread_factor": SPREAD_FACTOR,
    "spread_ulps": SPREAD_ULPS,
    "codec_levels": CODEC_LEVELS,
    "resize_levels": RESIZE_LEVELS,
}


def as_json(report: Report) -> dict[str, Any]:
    """The whole report as JSON values."""
    return {
        "format": 1,
        "summary": report.summary,
        "engine": report.engine,
        "environment": report.environment,
        "started": report.started.isoformat(),
        "seconds": round(report.seconds, 3),
        "recorded_from": report.recorded_from,
        "bounds": BOUNDS,
        "kinds": {
            kind: _as_json(summary)
            | {
                "recorded_from": dict(sorted(report.upstreams.get(kind, {}).items())),
                "groups": {group: _as_json(part) for group, part in report.groups(kind).items()},
            }
            for kind, summary in summarize(report.outcomes).items()
        },
        "not_yet_supported": {
            reason: [outcome.id for outcome in outcomes] for reason, outcomes in report.reasons().items()
        },
        "cases": [outcome.as_json() for outcome in report.outcomes],
    }


def _as_json(summary: Summary) -> dict[str, Any]:
    return {
        "cases": summary.cases,
        "equal": summary.passed,
        "failed": summary.failed,
        "unsupported": summary.unsupported,
        "worst": {name: as_numbers(near) | {"case": case} for name, (near, case) in sorted(summary.worst.items())},
    }
