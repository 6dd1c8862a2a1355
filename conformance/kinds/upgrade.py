"""Kind ``upgrade``: the tools that bring old definitions up to date (FORMAT-upgrade.md), as processes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.engines import Engine
from conformance.outcome import Findings


def play(case: Case, engine: Engine) -> Recording:
    """Run the tool beside a copy of its input; ``values["written"]``: the bytes of the file it wrote, or None."""
    given = case.given
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name)
        shutil.copy(case.folder / given["input"], folder / given["input"])
        run = engine.programs(case.upstream).run(given["tool"], [given["input"], given["output"]], folder)
        output = folder / given["output"]
        written = output.read_bytes() if output.exists() else None
    return Recording({**run, "written": written})


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Everything is exact: the status, each line, and the file, byte by byte."""
    recorded, values = case.recorded.values, got.values
    for key in ("exit", "signal", "stdout", "parser"):
        findings.value(key, recorded[key], values.get(key))
    findings.value("log", *(_stripped(side["log"]) for side in (recorded, values)))
    if "output" not in recorded:
        findings.value("output", None, values.get("written"))
        return
    path = case.folder / recorded["output"]
    if not path.is_file():
        raise CaseError(f"{path}: is not there, but case.json says it was written")
    expected, written = path.read_bytes(), values.get("written") or b""
    if path.suffix == ".prototxt":
        findings.value("output", *(side.decode("utf-8", "replace").split("\n") for side in (expected, written)))
    else:
        findings.array("output", np.frombuffer(expected, np.uint8), np.frombuffer(written, np.uint8))


def _stripped(log: list[Any]) -> list[Any]:
    return [[level, file, text.rstrip()] for level, file, text in log]
