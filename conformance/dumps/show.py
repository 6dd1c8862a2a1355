"""What a comparison found: a table and a sentence for people, JSON for programs, a picture."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.dumps.reading import Dump
from conformance.dumps.steps import Near
from conformance.dumps.walk import EQUAL, MISSING, PARTS, UNKNOWN, WITHIN, Comparison, Verdict

_NAMED = 12  # of the missing arrays
_STYLES = {PARTS: "bold red", UNKNOWN: "yellow", MISSING: "dim"}


def print_table(console: Console, comparison: Comparison, everything: bool) -> None:
    """Every array that differs, or ``everything``; then what is missing, and what the first parting is."""
    table = Table(title="blob by blob, in the order of the passes", title_justify="left")
    for title in ("layer", "type", "array", "", "A and B differ by", "A's error (share of its bound)", "B's error", ""):
        table.add_column(title, overflow="fold")
    shown = [v for v in comparison.verdicts if everything or v.status not in (EQUAL, MISSING)]
    for v in shown:
        drift = "" if not v.drift else f"{v.drift:.2g} of the largest"
        cells = v.layer, v.type, v.name, v.status, drift, _near_text(v.a), _near_text(v.b), v.note
        table.add_row(*map(escape, cells), style=_STYLES.get(v.status, ""))
    if shown:
        console.print(table)
    elif comparison.count(EQUAL):
        console.print("every array that both have is equal, bit for bit")
    missing = [f"{v.name} ({v.note})" for v in comparison.verdicts if v.status == MISSING]
    if missing and not everything:
        more = f" … {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        console.print(escape(f"missing: {', '.join(missing[:_NAMED])}{more}"), highlight=False, soft_wrap=True)
    if comparison.only_in_b:
        console.print(escape(f"only in B, not compared: {', '.join(comparison.only_in_b)}"), soft_wrap=True)
    counts = ", ".join(f"{comparison.count(s)} {s}" for s in (EQUAL, WITHIN, PARTS, UNKNOWN, MISSING))
    console.print(f"{len(comparison.verdicts)} arrays: {counts}", highlight=False)
    console.print(escape(sentence(comparison)), highlight=False, soft_wrap=True)


def _near_text(near: Near | None) -> str:
    if near is None:
        return ""
    if near.error == 0:
        return "0"
    share = f"{near.ratio:.2g}" if math.isfinite(near.ratio) else "∞"
    return f"{near.error:.2g} ({share}) at {list(near.index)}"


def sentence(comparison: Comparison) -> str:
    """The first place where the runs part, and which of them is off there."""
    first = comparison.first
    if first is None:
        judged = comparison.count(EQUAL) + comparison.count(WITHIN)
        return "The runs do not part." if judged else "Nothing could be compared."
    place = f"The runs part at layer {first.layer!r} ({first.type}), {first.name}"
    if first.a is None and first.b is None:
        return f"{place}: {first.note}."
    off = [side for side, near in (("A", first.a), ("B", first.b)) if near is not None and near.ratio > 1]
    return f"{place}: {' and '.join(off)} is not what the layer makes of the bottoms that {' and '.join(off)} had."


def as_json(a: Dump, b: Dump, comparison: Comparison) -> dict[str, Any]:
    """Everything as JSON values; infinities are null."""
    first = comparison.first
    return {
        "format": 1,
        "a": {"path": str(a.path), "engine": a.engine},
        "b": {"path": str(b.path), "engine": b.engine},
        "parts": first is not None,
        "first": None if first is None else _verdict_json(first),
        "summary": sentence(comparison),
        "counts": {status.lower(): comparison.count(status) for status in (EQUAL, WITHIN, PARTS, UNKNOWN, MISSING)},
        "only_in_b": comparison.only_in_b,
        "arrays": [_verdict_json(verdict) for verdict in comparison.verdicts],
    }


def _verdict_json(v: Verdict) -> dict[str, Any]:
    return {
        "layer": v.layer,
        "type": v.type,
        "what": v.what,
        "name": v.name,
        "status": v.status.lower(),
        "difference": _number(v.drift),
        "a": _near_json(v.a),
        "b": _near_json(v.b),
        "note": v.note,
    }


def _near_json(near: Near | None) -> dict[str, Any] | None:
    if near is None:
        return None
    numbers = {"error": near.error, "bound": near.bound, "ratio": near.ratio}
    return {key: _number(x) for key, x in numbers.items()} | {"at": list(near.index), "without_bound": near.unknown}


def _number(x: float | None) -> float | None:
    return x if x is not None and math.isfinite(x) else None


def draw(comparison: Comparison, output: Path) -> None:
    """A picture (.png, .svg, .pdf): each run's error as a share of its bound, and how far the runs have drifted.

    RuntimeError if matplotlib is missing or there is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RuntimeError("plots need matplotlib: pip install 'refcaffe[plot]'") from error
    verdicts = [v for v in comparison.verdicts if v.status not in (MISSING, UNKNOWN) and v.what != "draws"]
    if not verdicts:
        raise RuntimeError("nothing to plot: no array is in both runs")
    least = 2.0**-30  # stands for 0 on the logarithmic axes
    figure = Figure(figsize=(max(7, min(0.16 * len(verdicts), 30)), 6.5), layout="constrained")
    axes: Any = figure.subplots(2, 1, sharex=True)
    for side, marker in (("a", "o"), ("b", "x")):
        ratios = [None if (near := getattr(v, side)) is None else _on_axis(near.ratio, least) for v in verdicts]
        points = [(i, ratio) for i, ratio in enumerate(ratios) if ratio is not None]
        if points:
            axes[0].plot(*zip(*points, strict=True), marker, label=side.upper(), markersize=4, fillstyle="none")
    axes[0].axhline(1, color="tab:red", linewidth=1, label="bound")
    axes[0].set(yscale="log", ylabel="error / bound")
    axes[1].plot([_on_axis(v.drift or 0.0, least) for v in verdicts], ".-", linewidth=0.8, markersize=4)
    axes[1].set(yscale="log", ylabel="|A - B| / largest of A")
    first = comparison.first
    for panel in axes:
        panel.grid(alpha=0.3)
        if first in verdicts:
            panel.axvline(verdicts.index(first), color="tab:red", alpha=0.4, linestyle="--")
    if first is not None:
        axes[0].set_title(sentence(comparison), fontsize="small", wrap=True)
    axes[0].legend(fontsize="small")
    step = max(1, len(verdicts) // 90)
    axes[1].set_xticks(range(0, len(verdicts), step))
    axes[1].set_xticklabels([v.name for v in verdicts[::step]], rotation=90, fontsize=6)
    figure.savefig(output, dpi=130)


def _on_axis(x: float, least: float) -> float:
    return min(max(x, least), 1 / least)
