"""Plots of errors against their bounds, as inline SVG: the place of a dot is error over bound, on a log scale."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from html import escape

from conformance.compare import Closeness
from conformance.outcome import Outcome
from conformance.report.summary import Summary, in_order
from conformance.report.text import error_text

_LOW, _HIGH = -4.0, 1.0  # decades shown; the bound is at 0
_ROW = 40  # pixels of a class in a strip plot, its name above the dots
_TICKS = {-4.0: "≤ 0.01 %", -3.0: "0.1 %", -2.0: "1 %", -1.0: "10 %", 0.0: "bound"}


def place(ratio: float) -> float:
    """Where a ratio lies on the scale, in percent of the plot's width; what is beyond the scale lies at its end.

    Percents, so that dots and letters keep their size on a narrow screen.
    """
    decade = math.log10(min(max(ratio, 10.0**_LOW), 10.0**_HIGH))
    return round(2 + 96 * (decade - _LOW) / (_HIGH - _LOW), 2)


def gauge(summary: Summary) -> str:
    """One dot per exactness class of a group, with the bound as a line."""
    dots = []
    for number, name in enumerate(summary.classes()):
        near, case = summary.worst[name]
        y = 4 + 6 * number / max(len(summary.worst) - 1, 1)
        dots.append(_dot(y, name, near, case))
    return (
        '<svg class="gauge" role="img" aria-label="largest error over its bound">'
        f'<line class="track" x1="0" x2="100%" y1="7" y2="7"/>{_tick(0.0, 14)}{"".join(dots)}</svg>'
    )


def strip(outcomes: Iterable[Outcome]) -> str:
    """Every case as a dot, a row per class; nothing if all came out equal to the bit."""
    rows: dict[str, list[tuple[Outcome, Closeness]]] = {}
    for outcome in outcomes:
        for name, near in outcome.worst.items():
            rows.setdefault(name, []).append((outcome, near))
    shown = [name for name in in_order(rows) if any(near.error for _, near in rows[name])]
    if not shown:
        return ""
    height = _ROW * len(shown)
    parts = []
    for decade, label in _TICKS.items():
        x, anchor = place(10.0**decade), "start" if decade == _LOW else "middle"
        minor = ' class="minor"' if decade == _LOW + 1 else ""  # no room for it on a narrow screen
        parts.append(_tick(decade, height))
        parts.append(f'<text{minor} x="{x}%" y="{height + 14}" text-anchor="{anchor}">{label}</text>')
    for number, name in enumerate(shown):
        top = _ROW * number
        parts.append(f'<text class="{escape(name)}" x="0" y="{top + 11}">{escape(name)}</text>')
        for outcome, near in rows[name]:
            jitter = zlib.crc32(outcome.id.encode()) % 1000 / 999 * (_ROW - 22)
            parts.append(_dot(top + 18 + jitter, name, near, outcome.name))
    label = "Every case: its largest error over the bound"
    return f'<svg class="strip" height="{height + 20}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _tick(decade: float, height: int) -> str:
    x = place(10.0**decade)
    return f'<line class="{"bound" if decade == 0 else "grid"}" x1="{x}%" x2="{x}%" y1="0" y2="{height}"/>'


def _dot(y: float, name: str, near: Closeness, case: str) -> str:
    over = " over" if near.ratio > 1 else ""
    title = f"<title>{escape(case)}: {escape(error_text(name, near))}</title>"
    return f'<circle class="{escape(name)}{over}" cx="{place(near.ratio)}%" cy="{y:.1f}" r="3">{title}</circle>'
