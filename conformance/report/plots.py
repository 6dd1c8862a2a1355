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
_ROW = 34  # height of a class in a strip plot
_TICKS = {-4.0: "≤ 0.01 %", -3.0: "0.1 %", -2.0: "1 %", -1.0: "10 %", 0.0: "bound"}


def place(ratio: float) -> float:
    """Where a ratio lies on the scale, from 0 to 1; what is beyond it lies at its end."""
    if ratio <= 0:
        return 0.0
    decade = min(max(math.log10(ratio), _LOW), _HIGH) if math.isfinite(ratio) else _HIGH
    return (decade - _LOW) / (_HIGH - _LOW)


def gauge(summary: Summary) -> str:
    """One dot per exactness class of a group, with the bound as a line."""
    dots = []
    for number, name in enumerate(summary.classes()):
        near, case = summary.worst[name]
        x = 4 + 112 * place(near.ratio)
        y = 7 if len(summary.worst) == 1 else 4 + 6 * number / (len(summary.worst) - 1)
        dots.append(_dot(x, y, name, near, case, 3))
    bound = 4 + 112 * place(1)
    return (
        '<svg class="gauge" viewBox="0 0 120 14" role="img" aria-label="largest error over its bound">'
        f'<path class="track" d="M4 7H116"/><path class="bound" d="M{bound:.1f} 1V13"/>{"".join(dots)}</svg>'
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
        x = _x(place(10.0**decade))
        parts.append(f'<path class="{"bound" if decade == 0 else "grid"}" d="M{x} 0V{height}"/>')
        parts.append(f'<text x="{x}" y="{height + 14}" text-anchor="middle">{label}</text>')
    for number, name in enumerate(shown):
        middle = _ROW * number + _ROW / 2
        parts.append(f'<text x="0" y="{middle + 4:g}">{escape(name)}</text>')
        for outcome, near in rows[name]:
            jitter = (zlib.crc32(outcome.id.encode()) % 1000 / 999 - 0.5) * (_ROW - 12)
            x = _x(place(near.ratio))
            parts.append(_dot(x, middle + jitter, name, near, outcome.name, 2.6))
    label = "Every case: its largest error over the bound"
    return (
        f'<svg class="strip" viewBox="0 0 640 {height + 20}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )


def _x(share: float) -> float:
    return round(90 + 530 * share, 1)


def _dot(x: float, y: float, name: str, near: Closeness, case: str, radius: float) -> str:
    over = " over" if near.ratio > 1 else ""
    title = escape(f"{case}: {error_text(name, near)}")
    return (
        f'<circle class="c-{escape(name)}{over}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>{title}</title></circle>'
    )
