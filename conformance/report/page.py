"""The report as one page: nothing is loaded, no script runs, and it fits a phone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from html import escape
from importlib import resources
from typing import Any

from conformance.compare import BLAS_FACTOR, LIBM_ULPS, Closeness
from conformance.images import CODEC_LEVELS, RESIZE_LEVELS
from conformance.operations.spread import SPREAD_FACTOR, SPREAD_ULPS
from conformance.outcome import Outcome, Status
from conformance.report.plots import gauge, strip
from conformance.report.summary import Report, Summary, in_order, summarize

WHAT = {
    "syncedmem": "memory on two sides: heads, copies, allocations",
    "blob": "blobs: shapes, sharing, copies, files",
    "rng": "random streams",
    "filler": "initial values of parameters and data",
    "layer": "single layers, forward and backward",
    "net": "whole nets: structure, passes, weights",
    "solver": "training, step by step",
    "snapshot": "files of weights and solver states",
    "upgrade": "old definitions brought up to date",
    "transform": "preprocessing",
    "data": "data layers",
    "reader": "queues and readers",
    "dbtool": "tools around databases",
    "error": "bad input and what is said of it",
    "cli": "the command line",
    "gpumode": "GPU mode: heads, copies, numbers",
}
_MEANING = {
    "bitwise": "equal, bit for bit",
    "libm": f"within {LIBM_ULPS['default']} units in the last place per call of a libm function",
    "blas": f"within {BLAS_FACTOR} times the error bound derived for the sums that are left to BLAS",
    "codec": f"pixels that a codec rounds in its own way: within {CODEC_LEVELS} gray levels ({RESIZE_LEVELS} where "
    "they were resized); from the recorded pixels on everything is bitwise",
    "trajectory": f"whole training runs: within {SPREAD_FACTOR} times how far the original itself moves under other "
    f"BLAS kernels, plus {SPREAD_ULPS} units in the last place",
    "printed": "numbers in log lines: as above, plus the rounding of printing",
}


def page(report: Report) -> str:
    """The page's HTML."""
    style = resources.files("conformance.report").joinpath("page.css").read_text(encoding="utf-8")
    whole = summarize(report.outcomes, lambda outcome: "all").get("all", Summary())
    ran_on = " on ".join(report.engine[key] for key in ("engine", "device") if key in report.engine)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Conformance: {escape(report.summary)}</title><style>{style}</style></head><body>",
        "<h1>Conformance with original Caffe</h1>",
        f'<p class="verdict {whole.status.value}">{escape(report.summary)}</p>',
        f'<p class="dim">{escape(ran_on)}, {report.started:%Y-%m-%d %H:%M} UTC, {report.seconds:.0f} s</p>',
        _overview(report),
        _classes(report.outcomes),
        _failures(report.of_status(Status.FAILED)),
        _unsupported(report),
        "<h2>Kind by kind</h2>",
        *(_kind(report, kind, summary) for kind, summary in summarize(report.outcomes).items()),
        "<h2>What it was compared with</h2>",
        _provenance(report.recorded_from, report.recorded_counts()),
        "<h2>What it ran on</h2>",
        _pairs(report.engine | report.environment),
        "</body></html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _overview(report: Report) -> str:
    rows = (
        _row(f'<a href="#{escape(kind)}">{escape(kind)}</a> <span class="dim">{WHAT.get(kind, "")}</span>', summary)
        for kind, summary in summarize(report.outcomes).items()
    )
    return f'<h2>At a glance</h2><table class="glance">{_head("kind")}<tbody>{"".join(rows)}</tbody></table>'


def _head(first: str) -> str:
    counts = "".join(f'<th class="n">{title}</th>' for title in ("cases", "equal", "failed", "not yet"))
    return (
        f"<thead><tr><th>{first}</th>{counts}<th>largest error of its bound</th><th>error over bound</th></tr></thead>"
    )


def _row(name: str, summary: Summary) -> str:
    numbers = {
        "cases": (summary.cases, ""),
        "equal": (summary.passed, "passed"),
        "failed": (summary.failed, "failed"),
        "not yet supported": (summary.unsupported, "unsupported"),
    }
    counts = "".join(
        f'<td class="n {style if count else "zero"}" data-label="{label}">{count}</td>'
        for label, (count, style) in numbers.items()
    )
    chips = " ".join(_chip(exactness, summary.worst[exactness][0]) for exactness in summary.classes())
    plot = gauge(summary) if any(near.error for near, _ in summary.worst.values()) else ""
    return f"<tr><td>{name}</td>{counts}<td>{chips}</td><td>{plot}</td></tr>"


def _chip(exactness: str, near: Closeness) -> str:
    if near.error == 0:
        text = "0"
    elif math.isfinite(near.ratio):
        text = f"{near.error:.2g} of {near.bound:.2g} ({near.ratio:.1%})"
    else:
        text = f"{near.error:.2g}, must be equal"
    return f'<span class="near"><span class="chip {escape(exactness)}">{escape(exactness)}</span> {text}</span>'


def _classes(outcomes: Iterable[Outcome]) -> str:
    present = in_order({name for outcome in outcomes for name in outcome.worst})
    lines = (
        f'<dt><span class="chip {escape(name)}">{escape(name)}</span></dt><dd>{_MEANING.get(name, "")}</dd>'
        for name in present
    )
    return (
        "<h2>How close is equal</h2><p>The class of a value is decided by how the original computes it. No bound "
        "belongs to a single case; plots show error over bound, so that a bound which is too loose is seen.</p>"
        f"<dl>{''.join(lines)}</dl>"
    )


def _failures(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return ""
    shown = "".join(f"<pre>{escape(str(outcome))}</pre>" for outcome in outcomes)
    return f'<h2 id="failed" class="failed">Failed ({len(outcomes)})</h2>{shown}'


def _unsupported(report: Report) -> str:
    shown = "".join(
        f"<details><summary><b>{len(outcomes)}</b> {escape(reason)}</summary>"
        f"<p><code>{escape(', '.join(outcome.id for outcome in outcomes))}</code></p></details>"
        for reason, outcomes in report.reasons().items()
    )
    return f'<h2 class="unsupported">Not yet supported</h2>{shown}' if shown else ""


def _kind(report: Report, kind: str, summary: Summary) -> str:
    rows = "".join(_row(escape(group), part) for group, part in report.groups(kind).items())
    sources = ", ".join(f"{name} ({count})" for name, count in sorted(report.upstreams.get(kind, {}).items()))
    counts = f"{summary.passed} of {summary.cases} equal"
    return (
        f'<details><summary><b>{escape(kind)}</b> <span class="{summary.status.value}">{counts}</span> '
        f'<span class="dim">{WHAT.get(kind, "")}</span></summary>'
        f'<div id="{escape(kind)}"></div>'  # inside: a link to it opens the details
        f"{strip(outcome for outcome in report.outcomes if outcome.kind == kind)}"
        f"<table>{_head('group')}<tbody>{rows}</tbody></table>"
        f'<p class="dim">Recorded from {escape(sources or "an unknown Caffe")}.</p></details>'
    )


def _provenance(recorded_from: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    if not recorded_from:
        return "<p>There is no provenance.json with these cases.</p>"
    parts = []
    for name, count in counts.items():
        entry = recorded_from.get("upstreams", {}).get(name, {"source": "not described"})
        parts.append(f"<h3><code>{escape(name)}</code>, {count} cases</h3>{_pairs(entry)}")
    rest = {key: value for key, value in recorded_from.items() if key not in ("upstreams", "environment")}
    return _pairs(rest | recorded_from.get("environment", {})) + "".join(parts)


def _pairs(values: Mapping[str, Any]) -> str:
    lines = (f"<dt>{escape(str(key))}</dt><dd>{escape(str(value))}</dd>" for key, value in values.items())
    return f"<dl>{''.join(lines)}</dl>"
