"""Kind ``cli``: the ``caffe`` command (FORMAT-cli.md), as processes.

What is compared:

* exit status or signal, the protobuf parser's and the flag library's lines: exactly;
* log lines: words, levels, source files and whole numbers exactly, measured times not at all, other numbers within
  the bound of ``operations.logs``; what the HDF5 library prints between them of its calls is no log line;
* the usage: each recorded line must come, in order, with the engine's name for ``caffe``; further lines (commands and
  flags of its own) may come between them; all other output exactly, with the engine's name and version;
* an exception that a Python layer raised: it must be among those printed; of one that Boost.Python raised, whose words
  are about C++ types, the type;
* where the original died of a C++ exception, without a fatal line, the engine may have one;
* files left behind: their names, and sizes where recorded. Their bytes hold trained numbers.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.operations.files import is_hdf5
from conformance.operations.logs import judge_log
from conformance.operations.spread import SPREAD_ULPS
from conformance.outcome import Findings

_NOT_GIVEN = shutil.ignore_patterns("case.json", "recorded.npz", "out")
_PROGRAM = re.compile(r"(?<![\w./])caffe(?![\w./])")
_VERSION = re.compile(r"version \d[\w.]*")
_MILLISECONDS = re.compile(r"[\d.]+(?:e[-+]?\d+)? ms\.")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_HDF5_ERRORS = re.compile(r"\nHDF5-DIAG: .*", re.DOTALL)
_ITERATION = re.compile(r"_iter_\d+")
_EXCEPTION = re.compile(r"\n((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning|Iteration)\b.*)\Z")


def play(case: Case, engine: Engine) -> Recording:
    """The runs, one after the other in one copy of the case's folder, and the files that they leave."""
    programs = engine.programs(case.upstream)
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name).resolve()
        shutil.copytree(case.folder, folder, ignore=_NOT_GIVEN, dirs_exist_ok=True)
        before = set(folder.rglob("*"))
        runs = [programs.run("caffe", run["args"], folder, run.get("signals", ())) for run in case.given["runs"]]
        left = {
            path.relative_to(folder).as_posix(): _described(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and path not in before and "__pycache__" not in path.parts
        }
    return Recording({"runs": runs, "files": left, "program": [programs.name, programs.version]})


def _described(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    described = {"size": len(data)}
    return described if is_hdf5(path.name) else {**described, "sha256": hashlib.sha256(data).hexdigest()}


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """By the rules above."""
    recorded, values = case.recorded.values, got.values
    program = values.get("program", ["caffe", ""])
    timed = any("signals" in run for run in case.given["runs"])
    findings.value("number of runs", len(recorded["runs"]), len(values["runs"]))
    for number, (expected, run) in enumerate(zip(recorded["runs"], values["runs"])):
        where = f"runs[{number}]"
        for key in ("exit", "signal", "parser", "other_stderr"):
            findings.value(f"{where}.{key}", expected[key], run[key])
        _judge_stdout(f"{where}.stdout", expected["stdout"], run["stdout"], program, findings)
        _judge_messages(number, expected, run, timed, findings)
    sizes = ({_name(name, timed): entry.get("size") for name, entry in side.items()} for side in
             (recorded["files"], values["files"]))  # fmt: skip
    expected_files, files = sizes
    known = {name: size if expected_files.get(name) is not None else None for name, size in files.items()}
    findings.value("files", dict(sorted(expected_files.items())), dict(sorted(known.items())))


def _name(text: str, timed: bool) -> str:
    """Where a signal decides when something happens, the iteration in file names is not known."""
    return _ITERATION.sub("_iter_<N>", text) if timed else text


def _judge_stdout(where: str, recorded: str, got: str, program: list[str], findings: Findings) -> None:
    name, version = program
    expected = _PROGRAM.sub(name, recorded)
    if "\nusage: " not in expected:
        findings.value(where, _VERSION.sub(f"version {version}", expected) if version else expected, got)
        return
    rest = iter(got.splitlines())
    missing = [line for line in expected.splitlines() if not any(line == other for other in rest)]
    findings.value(f"{where}: lines that do not come, or not in this order", [], missing[:1])


def _judge_messages(
    number: int, recorded: dict[str, Any], run: dict[str, Any], timed: bool, findings: Findings
) -> None:
    """The log, and exceptions of Python."""
    sides = []
    for side in (recorded, run):
        log: list[list[Any]] = [[number, f"{level} {file}", _message(text, timed)] for level, file, text in side["log"]]
        printed = list(side.get("python", ()))
        # Without frames an exception looks like the last log line's continuation.
        if log and side["exit"] and (found := _EXCEPTION.search(log[-1][2])):
            log[-1][2] = log[-1][2][: found.start()]
            printed.append(found[1])
        sides.append((log, printed))
    (expected, raised), (log, printed) = sides
    for exception in raised:
        said = exception.partition(":")[0] if "C++ type" in exception else exception
        findings.value("exception", exception, exception if any(p.startswith(said) for p in printed) else printed)
    if recorded["signal"] and not any(line[1].startswith("F ") for line in expected):
        log = log[:-1] if log and log[-1][1].startswith("F ") else log
    judge_log(expected, log, SPREAD_ULPS * 2.0**-23, findings)


def _message(text: str, timed: bool) -> str:
    text = _HDF5_ERRORS.sub("", text)
    return _name(_ADDRESS.sub("<PTR>", _MILLISECONDS.sub("<T> ms.", text)), timed)
