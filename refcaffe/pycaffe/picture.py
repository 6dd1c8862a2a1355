"""A plain picture of a net's graph: nodes in ranks, each behind those it reads from, straight lines between."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

import numpy as np

if TYPE_CHECKING:
    from refcaffe.pycaffe.draw import Graph

_LINE, _LETTER, _MARGIN, _GAP = 16, 7.5, 10, 40  # in pixels
_MOST_PIXELS = 2**27  # of a PNG; more are shrunk
_ARROW = 8


@dataclass
class _Box:
    """Where a node is: its middle and its size."""

    x: float
    y: float
    width: float
    height: float


def _ranks(graph: Graph) -> dict[str, int]:
    """How many steps each node is behind the first ones. Edges of layers that work in place lead back: left out."""
    ranks = dict.fromkeys(graph.nodes, 0)
    placed: set[str] = set()
    for source, to, _ in graph.edges:
        placed.add(source)
        if to not in placed:
            ranks[to] = max(ranks[to], ranks[source] + 1)
    return ranks


def _layout(graph: Graph) -> tuple[dict[str, _Box], float, float]:
    """The box of each node, and the width and height of the whole."""
    boxes = {}
    for name, node in graph.nodes.items():
        lines = node.label.split("\n")
        boxes[name] = _Box(0, 0, max(map(len, lines)) * _LETTER + 2 * _MARGIN, len(lines) * _LINE + 2 * _MARGIN)
    by_rank: defaultdict[int, list[_Box]] = defaultdict(list)
    for name, rank in _ranks(graph).items():
        by_rank[rank].append(boxes[name])
    sideways = graph.rankdir in ("LR", "RL")
    along, across = ("width", "height") if sideways else ("height", "width")
    breadths = {rank: sum(getattr(box, across) + _GAP / 2 for box in row) for rank, row in by_rank.items()}
    length, breadth = float(_GAP / 2), max(breadths.values(), default=0.0)
    for rank in sorted(by_rank):
        row, deep = by_rank[rank], max(getattr(box, along) for box in by_rank[rank])
        place = (breadth - breadths[rank]) / 2
        for box in row:
            size = getattr(box, across) + _GAP / 2
            middle = (length + deep / 2, place + size / 2)
            box.x, box.y = middle if sideways else middle[::-1]
            place += size
        length += deep + _GAP
    for box in boxes.values():
        if graph.rankdir == "RL":
            box.x = length - box.x
        if graph.rankdir == "BT":
            box.y = length - box.y
    return boxes, *((length, breadth) if sideways else (breadth, length))


def _lines(graph: Graph, boxes: dict[str, _Box]) -> Iterator[tuple[tuple[float, float], tuple[float, float], str]]:
    """Each edge: from the border of one box to the border of the other, and its label."""
    for source, to, label in graph.edges:
        yield _border(boxes[source], boxes[to]), _border(boxes[to], boxes[source]), label


def _border(box: _Box, towards: _Box) -> tuple[float, float]:
    dx, dy = towards.x - box.x, towards.y - box.y
    part = min(box.width / 2 / abs(dx) if dx else np.inf, box.height / 2 / abs(dy) if dy else np.inf, 1)
    return box.x + dx * part, box.y + dy * part


def svg(graph: Graph) -> bytes:
    """The picture as SVG."""
    boxes, width, height = _layout(graph)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" font-family="monospace" '
        'font-size="12" text-anchor="middle">',
        f'<title>{escape(graph.name)}</title><defs><marker id="a" markerWidth="{_ARROW}" markerHeight="{_ARROW}" '
        f'refX="{_ARROW}" refY="3" orient="auto"><path d="M0,0 L{_ARROW},3 L0,6 z"/></marker></defs>',
    ]
    for (x1, y1), (x2, y2), label in _lines(graph, boxes):
        out.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="black" marker-end="url(#a)"/>'
        )
        if label:
            out.append(f'<text x="{(x1 + x2) / 2:.1f}" y="{(y1 + y2) / 2 - 4:.1f}">{escape(label)}</text>')
    for name, node in graph.nodes.items():
        box, lines = boxes[name], node.label.split("\n")
        left, top, radius = box.x - box.width / 2, box.y - box.height / 2, box.height / 2 if node.is_blob else 0
        out.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:.1f}" '
            f'fill="{node.color}" stroke="black"/>'
        )
        for i, line in enumerate(lines):
            baseline = top + _MARGIN + (i + 0.8) * _LINE
            out.append(f'<text x="{box.x:.1f}" y="{baseline:.1f}">{escape(line)}</text>')
    return "\n".join([*out, "</svg>", ""]).encode()


def png(graph: Graph) -> bytes:
    """The picture as PNG."""
    import cv2

    boxes, width, height = _layout(graph)
    scale = min(1.0, (_MOST_PIXELS / max(width * height, 1)) ** 0.5)
    image = np.full((max(int(height * scale), 1), max(int(width * scale), 1), 3), 255, np.uint8)

    def at(x: float, y: float) -> tuple[int, int]:
        return round(x * scale), round(y * scale)

    def write(text: str, x: float, y: float) -> None:
        font = cv2.FONT_HERSHEY_SIMPLEX, 0.4 * scale
        (width, _), _ = cv2.getTextSize(text, *font, 1)
        left, baseline = at(x, y)
        cv2.putText(image, text, (left - width // 2, baseline), *font, (0, 0, 0), 1, cv2.LINE_AA)

    for (x1, y1), (x2, y2), label in _lines(graph, boxes):
        tip = _ARROW / max(np.hypot(x2 - x1, y2 - y1), 1)
        cv2.arrowedLine(image, at(x1, y1), at(x2, y2), (0, 0, 0), 1, cv2.LINE_AA, tipLength=tip)
        write(label, (x1 + x2) / 2, (y1 + y2) / 2 - 4)
    for name, node in graph.nodes.items():
        box = boxes[name]
        left, top = box.x - box.width / 2, box.y - box.height / 2
        color = tuple(int(node.color[i : i + 2], 16) for i in (5, 3, 1))  # B, G, R
        for fill, thickness in ((color, cv2.FILLED), ((0, 0, 0), 1)):
            cv2.rectangle(image, at(left, top), at(left + box.width, top + box.height), fill, thickness)
        for i, line in enumerate(node.label.split("\n")):
            write(line, box.x, top + _MARGIN + (i + 0.8) * _LINE)
    return bytes(cv2.imencode(".png", image)[1])
