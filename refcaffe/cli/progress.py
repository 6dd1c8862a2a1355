"""Progress lines, on a terminal only."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from refcaffe.solvers import Solver


class _Above(io.TextIOBase):
    """Standard error while the line stands there: whole lines go above it, as long as they are."""

    def __init__(self, console: Any) -> None:
        self._console = console
        self._begun = ""

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            self._console.print(line, soft_wrap=True, markup=False, highlight=False, emoji=False)
        return len(text)


@contextmanager
def _line(what: str, *columns: Any) -> Iterator[Any]:
    """A line (rich's Progress) that stands under the log while the block runs."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, file=sys.stderr)
    with Progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), *columns, TimeRemainingColumn(), console=console,
        transient=True, redirect_stderr=False, redirect_stdout=sys.stdout.isatty(),
    ) as progress, redirect_stderr(_Above(console)):  # fmt: skip
        yield progress


@contextmanager
def training_progress(solver: Solver, quiet: bool = False) -> Iterator[None]:
    """Show iteration, loss and remaining time under the log while the block runs; nothing if piped or ``quiet``."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    from rich.progress import TextColumn

    with _line("training", TextColumn("loss {task.fields[loss]}")) as progress:
        task = progress.add_task("training", total=solver.param.max_iter, completed=solver.iter, loss="–")

        def show() -> None:
            progress.update(task, completed=solver.iter + 1, loss=f"{solver.smoothed_loss:.4g}")

        solver.add_callback(lambda: None, show)
        yield


@contextmanager
def counting(what: str, total: int | None = None) -> Iterator[Callable[[], None]]:
    """Gives a function to call for each of ``total`` things (None: unknown) that is done, and shows their number."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with _line(what) as progress:
        task = progress.add_task(what, total=total)
        yield lambda: progress.advance(task)
