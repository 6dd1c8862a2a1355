"""The command line: ``python -m conformance`` and ``refcaffe conformance``."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from conformance import kinds, scaffold, schema
from conformance.cases import Case, CaseError, find_cases, select
from conformance.engines import DEVICES, ENGINES, RECORDINGS, EngineError, make_engine
from conformance.outcome import Outcome, Status
from conformance.record import command
from conformance.report import Report, as_json, badge, page, print_report
from conformance.report.environment import environment
from conformance.run import run_cases

_EPILOG = """\
exit status: 0 all cases equal; 1 a case failed or is not yet supported; 2 wrong usage, or no case found.
Ctrl-C ends the program by SIGINT, which a shell shows as 130.
"""


class UsageError(Exception):
    """Something about the call is wrong; the message says what to do."""


def default_fixtures() -> Path:
    """``fixtures/`` beside the package, as in a checkout, or in the current directory. UsageError if neither is."""
    beside = Path(__file__).resolve().parent.parent / "fixtures"
    for folder in (beside, Path("fixtures")):
        if folder.is_dir():
            return folder
    raise UsageError(
        "no recorded cases here: installed packages leave them out. "
        "Run this in a checkout of refcaffe, or give their folder with --fixtures DIR"
    )


def build_parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Run recorded cases of original Caffe and compare, bit for bit or within derived bounds.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    choice = argparse.ArgumentParser(add_help=False)
    choice.add_argument("--kind", action="append", default=[], metavar="K", help="only cases of this kind (repeatable)")
    choice.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="PATTERN",
        help="only cases whose kind/group/name, or whole parts of it, fit this glob: 'gaussian/*', 'rng/shuffle', "
        "'*-long' (repeatable)",
    )
    choice.add_argument(
        "--fixtures",
        "--cases",
        type=Path,
        metavar="DIR",
        help="folder of cases (default: fixtures/ of the checkout)",
    )
    run = commands.add_parser("run", parents=[choice], help="run cases and report", epilog=_EPILOG)
    run.add_argument("--engine", choices=ENGINES, default="refcaffe", help="what to run them on (default: %(default)s)")
    run.add_argument("--device", choices=DEVICES, default="cpu", help="the engine's device (default: %(default)s)")
    run.add_argument("--report", type=Path, metavar="FILE", help="also write the report as one page, FILE.html")
    run.add_argument("--json", type=Path, metavar="FILE", help="also write the report as JSON; - is standard output")
    run.add_argument("--badge", type=Path, metavar="FILE", help="also write a one-line summary as a picture, FILE.svg")
    run.add_argument("--by-group", action="store_true", help="a row of the table per layer type, solver or feature")
    run.add_argument(
        "--allow-unsupported",
        action="store_true",
        help="cases that are not yet supported do not fail the run",
    )
    run.add_argument(
        "-j", "--jobs", type=_jobs, default=1, metavar="N", help="processes; auto: one per core (default: 1)"
    )
    run.add_argument(
        "--recordings",
        type=Path,
        metavar="DIR",
        help="run nothing: compare what another Caffe gave, as `record` wrote it to DIR",
    )
    commands.add_parser("list", parents=[choice], help="list cases, and which kinds have a runner")
    commands.add_parser("check", parents=[choice], help="check every case.json against its JSON Schema")
    new = commands.add_parser("new", help="make a case from a definition", epilog=scaffold.EPILOG)
    new.add_argument("kind", choices=("layer",), help="kind of the case")
    scaffold.add_arguments(new)
    record = commands.add_parser(
        "record",
        parents=[choice],
        help="record cases anew from an original Caffe",
        description=command.DESCRIPTION,
        epilog=command.EPILOG,
    )
    command.add_arguments(record)
    return parser


def _jobs(text: str) -> int:
    number = os.cpu_count() or 1 if text == "auto" else int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def main(argv: Sequence[str] | None = None, prog: str = "python -m conformance") -> int:
    """Run the command line; returns the exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0].startswith("-") and words[0] not in ("-h", "--help"):
        words.insert(0, "run")  # `refcaffe conformance --report FILE`
    arguments = build_parser(prog).parse_args(words)
    try:
        if arguments.command == "new":
            return scaffold.run(arguments)
        return _COMMANDS[arguments.command](_chosen(arguments), arguments)
    except BrokenPipeError:  # the reader of a pipe has had enough: `… list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (UsageError, CaseError, EngineError, OSError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2


def _folder(arguments: argparse.Namespace) -> Path:
    folder = arguments.fixtures or default_fixtures()
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder")
    return folder


def _chosen(arguments: argparse.Namespace) -> list[Case]:
    folder = _folder(arguments)
    found = find_cases(folder)
    if not found:
        raise UsageError(f"{folder}: no cases (folders with a case.json) in it")
    cases = select(found, arguments.kind, arguments.case)
    if not cases:
        there = ", ".join(sorted({case.kind for case in found}))
        raise UsageError(f"{folder}: none of the {len(found)} cases is asked for; kinds there: {there}")
    return cases


def _list(cases: list[Case], arguments: argparse.Namespace) -> int:
    runnable = set(kinds.supported())
    for case in cases:
        note = f"  broken: {case.problem}" if case.problem else "" if case.kind in runnable else "  (no runner yet)"
        print(f"{case.id}{note}")
    per_kind = ", ".join(f"{kind} {count}" for kind, count in sorted(Counter(case.kind for case in cases).items()))
    print(f"{len(cases)} cases: {per_kind}", file=sys.stderr)
    return 0


def _check(cases: list[Case], arguments: argparse.Namespace) -> int:
    wrong = 0
    for case in cases:
        found = [case.problem] if case.problem else schema.problems(case.document)
        wrong += bool(found)
        for problem in found:
            print(f"{case.id}: {problem}")
    print(f"{len(cases) - wrong} of {len(cases)} cases are as their schema says", file=sys.stderr)
    return int(bool(wrong))


def _run(cases: list[Case], arguments: argparse.Namespace) -> int:
    if arguments.recordings:
        arguments.engine = f"{RECORDINGS}{arguments.recordings}"
    started, began = time.perf_counter(), datetime.now(timezone.utc).replace(microsecond=0)
    to_stdout = str(arguments.json) == "-"
    console = Console(stderr=to_stdout)
    if not console.is_terminal:
        console.width = 110  # rich takes 80 where there is no terminal, too few for the table
    engine = make_engine(arguments.engine, arguments.device).describe()
    outcomes: list[Outcome] = []
    try:
        _collect(cases, arguments, outcomes)
    except KeyboardInterrupt:
        console.print(f"interrupted after {len(outcomes)} of {len(cases)} cases")
        raise
    finally:
        report = Report.of(
            cases[: len(outcomes)],
            outcomes,
            _folder(arguments),
            engine=engine,
            environment=environment(),
            started=began,
            seconds=time.perf_counter() - started,
        )
        if outcomes:
            print_report(console, report, arguments.by_group)
    _write(report, arguments)
    bad = {Status.FAILED} if arguments.allow_unsupported else {Status.FAILED, Status.UNSUPPORTED}
    return int(any(outcome.status in bad for outcome in outcomes))


_COMMANDS: dict[str, Callable[[list[Case], argparse.Namespace], int]] = {
    "run": _run,
    "list": _list,
    "check": _check,
    "record": command.run,
}


def _write(report: Report, arguments: argparse.Namespace) -> None:
    """The files that were asked for."""
    if arguments.report:
        arguments.report.write_text(page(report), encoding="utf-8")
    if arguments.badge:
        arguments.badge.write_text(badge(report), encoding="utf-8")
    if arguments.json:
        text = json.dumps(as_json(report), indent=1, allow_nan=False) + "\n"
        if str(arguments.json) == "-":
            sys.stdout.write(text)
        else:
            arguments.json.write_text(text, encoding="utf-8")


def _collect(cases: list[Case], arguments: argparse.Namespace, outcomes: list[Outcome]) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    terminal = Console(stderr=True)
    with Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task("cases", total=len(cases))
        for outcome in run_cases(cases, arguments.engine, arguments.device, arguments.jobs):
            outcomes.append(outcome)
            progress.update(task, advance=1, description=outcome.kind)
