"""The report on a terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.compare import Closeness
from conformance.outcome import Status
from conformance.report.summary import Report, Summary, summarize

STYLES = {Status.PASSED: "green", Status.FAILED: "red", Status.UNSUPPORTED: "yellow"}


def print_report(console: Console, report: Report, by_group: bool = False) -> None:
    """The table (a row per kind, or per group), then failed cases with their first differences, what is not supported

    and why, where the recordings come from, and one line.
    """
    console.print(_table(report, by_group))
    for outcome in report.of_status(Status.FAILED):
        console.print(escape(str(outcome)), highlight=False, soft_wrap=True)
    for reason, outcomes in report.reasons().items():
        _line(console, f"not yet supported: {reason} ({len(outcomes)} cases)")
    for upstream, count in report.recorded_counts().items():
        _line(console, f"recorded from {upstream}: {count} cases{_described(report, upstream)}")
    ran_on = ", ".join(f"{key} {value}" for key, value in report.engine.items())
    _line(console, f"{report.summary} ({report.seconds:.1f} s; {ran_on})")


def _line(console: Console, text: str) -> None:
    console.print(escape(text), highlight=False, soft_wrap=True)


def _described(report: Report, upstream: str) -> str:
    entry = report.recorded_from.get("upstreams", {}).get(upstream)
    return f" ({entry.get('source', '')} {entry.get('version', '')})" if entry else ""


def _table(report: Report, by_group: bool) -> Table:
    table = Table(title="Conformance with original Caffe", title_justify="left")
    table.add_column("kind")
    for title in ("cases", "equal"):
        table.add_column(title, justify="right")
    table.add_column("largest error (bound)")
    for title in ("failed", "not yet supported"):
        table.add_column(title, justify="right")
    for kind, summary in summarize(report.outcomes).items():
        _add_row(table, kind, summary)
        if by_group:
            for group, part in report.groups(kind).items():
                _add_row(table, f"  {group}", part)
    return table


def _add_row(table: Table, name: str, summary: Summary) -> None:
    errors = "\n".join(error_text(cls, summary.worst[cls][0]) for cls in summary.classes())
    cases, passed, failed, unsupported = map(str, (summary.cases, summary.passed, summary.failed, summary.unsupported))
    table.add_row(escape(name), cases, passed, errors or "–", failed, unsupported, style=STYLES[summary.status])


def error_text(exactness: str, near: Closeness) -> str:
    """``blas 1.2e-07 (3.4e-06, 4%)``."""
    return f"{exactness} {near.error:.2g}{of_bound(near)}"


def of_bound(near: Closeness) -> str:
    """`` (bound, share)``; nothing where there is no error."""
    if near.error == 0:
        return ""
    share = f", {near.ratio:.0%}" if math.isfinite(near.ratio) else ""
    return f" ({near.bound:.2g}{share})"
