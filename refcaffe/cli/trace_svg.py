"""A traced pass as a time line in SVG: copies between the two sides and, below, where each blob's newest bytes are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import log2
from xml.sax.saxutils import escape, quoteattr

from refcaffe.net.trace import Step
from refcaffe.watch import Copy

_COLUMN, _ROW, _LEFT, _TOP = 26, 15, 170, 150
_HOST, _DEVICE = 70, 120  # the two lanes, from the top
_HEADS = {"U": "#e6e6e6", "C": "#f2b134", "G": "#4f9d69", "S": "#7fb2d9", "-": "#ffffff"}
_NAMES = {"C": "newest on the host", "G": "newest on the device", "S": "on both", "U": "nothing yet"}
_ARROWS = {"H2D": "#b5651d", "D2H": "#7a3b8f", "D2D": "#4f9d69", "H2H": "#f2b134"}


def drawing(title: str, steps: Sequence[Step]) -> str:
    """The SVG document."""
    rows = [(name, which) for name in steps[0].heads for which in range(2)] if steps else []
    width = _LEFT + _COLUMN * len(steps) + 20
    height = _TOP + _ROW * len(rows) + 110
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="10">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        _text(10, 20, title, size=13),
        *_lanes(width),
        *(part for i, step in enumerate(steps) for part in _arrows(i, step.copies)),
        *_rows(rows, steps),
        *_labels(steps, _TOP + _ROW * len(rows) + 8),
        *_legend(),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, text: str, size: int = 10, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}"{more}>{escape(text)}</text>'


def _box(x: float, y: float, width: float, height: float, fill: str, note: str) -> str:
    shape = f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="{fill}"'
    return f"{shape}><title>{escape(note)}</title></rect>" if note else f"{shape}/>"


def _lanes(width: int) -> Iterator[str]:
    for y, name in ((_HOST, "host"), (_DEVICE, "device")):
        yield _text(10, y + 3, name)
        yield f'<line x1="{_LEFT}" y1="{y}" x2="{width - 20}" y2="{y}" stroke="#999"/>'


def _arrows(column: int, copies: list[Copy]) -> Iterator[str]:
    """One mark per direction: as thick as the logarithm of its bytes; what it moved is its note."""
    for i, way in enumerate(way for way in _ARROWS if any(copy.direction == way for copy in copies)):
        moved = [copy for copy in copies if copy.direction == way]
        nbytes = sum(copy.nbytes for copy in moved)
        note = "\n".join([f"{way}, {nbytes:,} bytes", *(f"{copy.nbytes:,} {' -> '.join(copy.ends)}" for copy in moved)])
        x = _LEFT + _COLUMN * column + 6 + 5 * i
        thick = 1 + log2(1 + nbytes) / 8
        start, end = (_HOST if side == "H" else _DEVICE for side in (way[0], way[2]))
        if start == end:
            circle = f'<circle cx="{x}" cy="{start}" r="{thick + 1:.1f}" fill="{_ARROWS[way]}">'
            yield f"{circle}<title>{escape(note)}</title></circle>"
            continue
        tip = 5 if end > start else -5
        points = f"{x - 4},{end - tip} {x + 4},{end - tip} {x},{end}"
        yield _text(x - 2, _HOST - 6, _short(nbytes), size=7)
        yield (
            f'<g fill="{_ARROWS[way]}" stroke="{_ARROWS[way]}"><title>{escape(note)}</title>'
            f'<line x1="{x}" y1="{start}" x2="{x}" y2="{end - tip}" stroke-width="{thick:.1f}"/>'
            f'<polygon points="{points}"/></g>'
        )


def _short(nbytes: int) -> str:
    """A number of bytes in few letters."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if nbytes >= unit:
            return f"{nbytes / unit:.3g}{name}"
    return str(nbytes)


def _rows(rows: list[tuple[str, int]], steps: Sequence[Step]) -> Iterator[str]:
    for number, (name, which) in enumerate(rows):
        y = _TOP + _ROW * number
        label = f"{name}.{('data', 'diff')[which]}"
        yield _text(10, y + 10, label if len(label) <= 27 else label[:26] + "…")
        for i, step in enumerate(steps):
            letter = step.heads[name][which]
            note = f"{label} after {step.what} {step.layer}: {letter}".replace("  ", " ")
            yield _box(_LEFT + _COLUMN * i, y, _COLUMN - 1, _ROW - 2, _HEADS[letter], note)


def _labels(steps: Sequence[Step], y: float) -> Iterator[str]:
    for i, step in enumerate(steps):
        x = _LEFT + _COLUMN * i + 10
        mark = {"forward": "↓ ", "backward": "↑ "}.get(step.what, "")
        turned = f" transform={quoteattr(f'rotate(60 {x} {y})')}"
        yield _text(x, y, f"{mark}{step.layer or step.what}", more=turned)


def _legend() -> Iterator[str]:
    x = _LEFT
    for letter, name in _NAMES.items():
        yield _box(x, 32, 12, 12, _HEADS[letter], "")
        yield _text(x + 16, 42, name)
        x += 130
