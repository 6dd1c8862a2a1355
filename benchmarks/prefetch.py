"""``python -m benchmarks.prefetch``: images per second of the data layers, beside others and the machine's own limits.

Every row is a source of images, read in batches of 64 by a net that has nothing else. In one run, taking turns: the
layer with one and with two workers, a loop as one would write it, original Caffe where a Python has it, and what the
machine does at most: decode the same bytes on all cores, or copy as many bytes as the images and the batch have.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.engines import HERE, Missing, Process, python_with
from benchmarks.sources import BATCH, SOURCES, batches, limit, loop, make, net_of
from refcaffe.kernels.parallel import num_threads

WAYS = ["1 worker", "2 workers", "loop", "Caffe", "limit"]
COUNT = 40  # batches at a time


def caffe_batches(source: str, folder: Path) -> Process:
    """Original Caffe's layer, in a Python that has it; to be asked for the seconds of a number of batches."""
    script = str(HERE / "peers" / "caffe_batches.py")
    return Process([python_with("caffe", "TRAIN"), script], {"model": str(net_of(source, folder))})


def seconds(make_batch: Callable[[], Any], count: int = COUNT) -> float:
    """For so many batches."""
    start = time.perf_counter()
    for _ in range(count):
        make_batch()
    return time.perf_counter() - start


def measure(source: str, folder: Path, rounds: int, notes: set[str]) -> dict[str, float]:
    """Everybody's best images per second."""
    best: dict[str, float] = defaultdict(float)

    def count(way: str, took: float) -> None:
        best[way] = max(best[way], COUNT * BATCH / took)

    with ExitStack() as stack:
        caffe = None
        try:
            caffe = caffe_batches(source, folder)
            stack.callback(caffe.close)
        except Missing as reason:
            notes.add(f"Caffe: {reason}")
        by_hand, least = loop(source, folder), limit(source, folder)
        for _ in range(rounds):
            for way, workers in (("1 worker", 1), ("2 workers", 2)):
                with batches(source, folder, workers) as take:
                    seconds(take, 8)  # those made in advance
                    count(way, seconds(take))
            count("loop", seconds(by_hand))
            count("limit", seconds(least))
            if caffe is not None:
                count("Caffe", caffe.seconds(str(COUNT)))
    return dict(best)


def table(rows: dict[str, dict[str, float]]) -> Table:
    """Images per second, and what part of them two workers reach, or how many times as many."""
    made = Table(title=f"images per second, {num_threads()} threads; in brackets 2 workers as a multiple")
    made.add_column("source")
    for way in WAYS:
        made.add_column(way, justify="right")
    for source, rates in rows.items():
        ours = rates["2 workers"]
        cells = (f"{rates[way]:,.0f} ({ours / rates[way]:.2f}x)" if way in rates else "-" for way in WAYS)
        made.add_row(source, *cells)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prefetch", description=__doc__)
    letters = [source[0] for source in SOURCES]
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="; ".join(SOURCES) + " (default: all)")
    parser.add_argument("--rounds", type=int, default=5, help="the best of so many counts (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all rates")
    given = parser.parse_args()
    if unknown := set(given.sources) - set(letters):
        parser.error(f"no source {', '.join(sorted(unknown))}: choose from {' '.join(letters)}")
    console, notes, rows = Console(), set[str](), {}
    with tempfile.TemporaryDirectory(prefix="refcaffe-benchmark-") as folder:
        make(Path(folder))
        for source in SOURCES:
            if not given.sources or source[0] in given.sources:
                rows[source] = measure(source, Path(folder), given.rounds, notes)
                console.print(source, {way: round(value) for way, value in rows[source].items()})
    console.print(table(rows))
    for note in sorted(notes):
        console.print(f"left out: {note}", highlight=False)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
