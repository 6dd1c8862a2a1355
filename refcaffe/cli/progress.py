"""A progress line while a solver trains, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from refcaffe.solvers import Solver


@contextmanager
def training_progress(solver: Solver, quiet: bool = False) -> Iterator[None]:
    """Show iteration, loss and remaining time under the log while the block runs; nothing if piped or ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("loss {task.fields[loss]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("training", total=solver.param.max_iter, completed=solver.iter, loss="–")

        def show() -> None:
            progress.update(task, completed=solver.iter + 1, loss=f"{solver.smoothed_loss:.4g}")

        solver.add_callback(lambda: None, show)
        yield
