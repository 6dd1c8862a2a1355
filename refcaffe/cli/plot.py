"""``refcaffe plot``: curves of one or more training runs, as a picture."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from refcaffe.checks import CheckError
from refcaffe.cli.training_log import Curve, TrainingLog, parse


def draw(runs: dict[str, TrainingLog], output: Path) -> None:
    """Draw loss, test scores and learning rate of named runs into a PNG, SVG or PDF file.

    Raises CheckError if matplotlib is missing or the runs hold nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise CheckError("plots need matplotlib: pip install 'refcaffe[plot]'") from error
    panels: dict[str, list[tuple[str, Curve]]] = {}
    for run, log in runs.items():
        curves = {"loss": log.loss, **log.scores, "learning rate": log.rate}
        for name, curve in curves.items():
            if curve:
                # A test's loss belongs beside the training loss.
                panel, label = ("loss", f"{run}, test") if name == "loss" and curve is not log.loss else (name, run)
                panels.setdefault(panel, []).append((label, curve))
    if not panels:
        raise CheckError("nothing to plot: no loss, score or learning rate in the log(s)")
    figure = Figure(figsize=(7, 2.6 * len(panels)), layout="constrained")
    all_axes: Any = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for axes, (panel, lines) in zip(all_axes, panels.items(), strict=True):
        for label, curve in lines:
            axes.plot(*zip(*curve, strict=True), label=label, marker="." if len(curve) < 30 else None, linewidth=1.2)
        axes.set(ylabel=panel, xlabel="iteration")
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend(fontsize="small")
    figure.savefig(output, dpi=150)


def main(arguments: Sequence[str]) -> int:
    """The command: reads logs, writes one picture; returns the exit status."""
    parser = argparse.ArgumentParser(prog="refcaffe plot", description=__doc__)
    parser.add_argument("logs", nargs="+", type=Path, metavar="LOG", help="what `refcaffe train` or `caffe train` said")
    parser.add_argument("-o", "--output", type=Path, default=Path("training.png"), help="picture: .png, .svg or .pdf")
    options = parser.parse_args(arguments)
    stems = [path.stem for path in options.logs]
    runs = {}
    for path in options.logs:
        with path.open(errors="replace") as lines:
            # Runs in folders of their own often have logs of one name.
            runs[path.stem if stems.count(path.stem) == 1 else str(path)] = parse(lines)
    draw(runs, options.output)
    print(f"wrote {options.output}")
    return 0
