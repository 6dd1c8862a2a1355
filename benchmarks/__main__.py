"""``python -m benchmarks``: passes of nets, side by side with whoever is there, as a table of ratios and a picture."""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import nets
from benchmarks.engines import ENGINES, FORWARD_ONLY, Missing
from refcaffe.kernels.parallel import num_threads

PAUSE = 0.3  # seconds, in which the threads of the one before stop to wait by spinning
Times = dict[str, float]  # seconds by engine


def measure(name: str, batch: int | None, what: str, rounds: int, notes: set[str]) -> Times:
    """Every engine's best time for a pass; they take turns, so that all see the same load of the machine."""
    running: dict[str, Any] = {}
    best: dict[str, float] = defaultdict(lambda: float("inf"))
    try:
        for engine, start in ENGINES.items():
            if what == "both" and engine in FORWARD_ONLY:
                continue
            try:
                running[engine] = start(name, batch)
            except Missing as reason:
                notes.add(f"{engine}: {reason}")
        for _ in range(rounds + 1):  # one to warm up
            for engine in list(running):
                time.sleep(PAUSE)
                try:
                    best[engine] = min(best[engine], running[engine].seconds(what))
                except Missing as reason:
                    notes.add(f"{engine}, {name}: {reason}")
                    running.pop(engine).close()
    finally:
        for process in running.values():
            process.close()
    return {engine: best[engine] for engine in ENGINES if engine in running}


def limit(name: str, batch: int | None, what: str, speed: float) -> float:
    """Seconds that the matrix products alone would take; three times as many with the backward pass."""
    return nets.products(nets.load(name, batch)) / speed * (3 if what == "both" else 1)


def table(rows: dict[str, Times]) -> Table:
    """refcaffe's time, and what part it is of the others'."""
    others = [name for name in (*ENGINES, "sgemm") if name != "refcaffe"]
    made = Table(title=f"refcaffe beside others, {num_threads()} threads: ms, and refcaffe's time as part of theirs")
    made.add_column("pass")
    made.add_column("refcaffe", justify="right")
    for name in others:
        made.add_column(name, justify="right")
    for row, times in rows.items():
        ours = times["refcaffe"]
        cells = [f"{times[name] * 1e3:.4g} ({ours / times[name]:.2f}x)" if name in times else "-" for name in others]
        made.add_row(row, f"{ours * 1e3:.4g}", *cells)
    return made


def draw(rows: dict[str, Times], path: Path) -> None:
    """Bars: the others' times as multiples of refcaffe's."""
    from matplotlib.figure import Figure

    names = [name for name in (*ENGINES, "sgemm") if any(name in times for times in rows.values())]
    figure = Figure(figsize=(9, 1 + 0.5 * len(rows)), layout="constrained")
    axes = figure.subplots()
    height = 0.8 / len(names)
    for i, name in enumerate(names):
        places = [y + i * height for y, times in enumerate(rows.values()) if name in times]
        lengths = [times[name] / times["refcaffe"] for times in rows.values() if name in times]
        axes.barh(places, lengths, height, label=name)
    axes.set_yticks([y + 0.4 - height / 2 for y in range(len(rows))], list(rows))
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("time as a multiple of refcaffe's")
    axes.legend()
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("nets", nargs="*", default=nets.NAMES, metavar="NET", help=f"default: {' '.join(nets.NAMES)}")
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many counts (default: %(default)s)")
    parser.add_argument("--single", action="store_true", help="batches of 1 image, forward, too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times, in seconds")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the ratios")
    given = parser.parse_args()
    console, notes, rows = Console(), set[str](), {}
    speed = nets.product_speed()
    wanted = [(name, None, what) for name in given.nets for what in nets.PASSES]
    wanted += [(name, 1, "forward") for name in given.nets if given.single]
    for name, batch, what in wanted:
        label = f"{Path(name).stem}, {'forward and backward' if what == 'both' else 'forward'}"
        label += f", batch {batch}" if batch else ""
        times = measure(name, batch, what, given.rounds, notes)
        rows[label] = {**times, "sgemm": limit(name, batch, what, speed)}
        console.print(label, {key: f"{value * 1e3:.4g} ms" for key, value in rows[label].items()})
    console.print(table(rows))
    for note in sorted(notes):
        console.print(f"left out: {note}", highlight=False)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))
    if given.plot:
        draw(rows, given.plot)


if __name__ == "__main__":
    main()
