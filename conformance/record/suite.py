"""Kinds that pycaffe does not reach: cases played on an original Caffe, written down as their FORMAT pages say."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conformance import kinds
from conformance.cases import Case, Recording
from conformance.compare import compare_values
from conformance.engines import Engine
from conformance.outcome import Unsupported
from conformance.record import record_pycaffe

_TIME = re.compile(r"[\d.]+(?:e[-+]?\d+)? ms\.")
_ADDRESS = re.compile(r"0x[0-9a-f]+")
_ITERATION = re.compile(r"_iter_\d+")
_RUNTIME = ("terminate called ", "  what():")  # what the C++ library says as a process dies of an exception


@dataclass
class Written:
    """What a recorded case holds: ``recorded`` of its case.json, arrays of recorded.npz, further files by name."""

    values: dict[str, Any]
    arrays: dict[str, np.ndarray] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


def record(case: Case, engine: Engine) -> Written:
    """Play a case and write down what came out. Raises Unsupported for kinds that have no written form here."""
    written_form = _FORMS.get(case.kind)
    if written_form is None:
        raise Unsupported(f"a way to record kind {case.kind}")
    fresh = case.fresh()
    return written_form(fresh, engine.recording(fresh, kinds.find(case.kind).play))


def differences(case: Case, written: Written) -> list[str]:
    """Where this is not what the case holds."""
    old = case.recorded
    found = compare_values("recorded", old.values, written.values)
    arrays = [
        f"array {name}"
        for name in sorted(old.arrays.keys() | written.arrays.keys())
        if name not in old.arrays
        or name not in written.arrays
        or not record_pycaffe.same_bits(old.arrays[name], written.arrays[name])
    ]
    files = [name for name, data in written.files.items() if not _holds(case.folder / name, data)]
    return ([str(found)] if found else []) + arrays + files


def _holds(path: Path, data: bytes) -> bool:
    if not path.is_file():
        return False
    unpack: Callable[[bytes], bytes] = gzip.decompress if path.suffix == ".gz" else bytes
    if path.suffix == ".gz":
        return [json.loads(line) for line in unpack(path.read_bytes()).splitlines()] == [
            json.loads(line) for line in unpack(data).splitlines()
        ]
    return path.read_bytes() == data


def write(case: Case, written: Written, target: Path, upstream: str) -> list[str]:
    """Write the case to a folder; returns the differences. What is the same is copied byte by byte."""
    found = differences(case, written)
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(case.folder, target)
    if found or upstream != case.upstream:
        document = {**case.document, "upstream": upstream, "recorded": written.values}
        record_pycaffe.write_json(str(target / "case.json"), document)
    if found:
        (target / "recorded.npz").unlink(missing_ok=True)
        if written.arrays:
            record_pycaffe.write_npz(str(target / "recorded.npz"), list(written.arrays.items()))
        for name, data in written.files.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(data)
    return found


def _rng(case: Case, got: Recording) -> Written:
    return Written({"exactness": "bitwise", **got.values}, got.arrays)


def _blob(case: Case, got: Recording) -> Written:
    for script, steps in zip(case.given["scripts"], got.values["scripts"]):
        for (operation, *_), step in zip(script["ops"], steps):
            if operation.startswith(("asum", "sumsq")) and "ret" in step:
                step["exactness"] = "blas"
    return Written(got.values)


def _syncedmem(case: Case, got: Recording) -> Written:
    if "transitions" in case.recorded.values:
        raise Unsupported("the folded table of transitions, which is derived from the traces")
    with gzip.open(case.folder / case.given["file"], "rt", encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    steps = got.values["steps"]
    text = "".join(json.dumps({**line, "steps": own}, separators=(",", ":")) + "\n" for line, own in zip(lines, steps))
    fatal = Counter(step["fatal"]["message"] for own in steps for step in own if "fatal" in step)
    summary = {"file": case.given["file"], "sequences": len(steps), "steps": sum(map(len, steps)), "fatal": dict(fatal)}
    return Written(summary, files={case.given["file"]: gzip.compress(text.encode(), mtime=0)})


def _transform(case: Case, got: Recording) -> Written:
    encoded, own = got.values.pop("decoded")
    values = {key: value for key, value in got.values.items() if key != "log" or value}
    if "fatal" in values:
        values.pop("global_next", None)
    return Written(values, {name: own[data] for name, data in encoded.items() if data in own} | got.arrays)


def _upgrade(case: Case, got: Recording) -> Written:
    values = {key: got.values[key] for key in ("exit", "signal", "log", "parser", "stdout")}
    if got.values["written"] is None:
        return Written(values)
    name = case.recorded.values.get("output", f"out/{case.given['output']}")
    return Written({**values, "output": name}, files={name: got.values["written"]})


def _dbtool(case: Case, got: Recording) -> Written:
    values = {key: value for key, value in got.values.items() if key != "python" and value not in (None, [], {})}
    if "log" in values:  # lines without a beginning of their own come from elsewhere
        values["log"] = [[level, text.partition("\n")[0]] for level, text in values["log"]]
    return Written({"exit": got.values["exit"], **values}, got.arrays)


def _cli(case: Case, got: Recording) -> Written:
    timed = any("signals" in run for run in case.given["runs"])

    def plain(text: str) -> str:
        text = _ADDRESS.sub("<PTR>", _TIME.sub("<T> ms.", record_pycaffe.without_times(text)))
        return _ITERATION.sub("_iter_<N>", text) if timed else text

    runs = [
        {
            "exit": run["exit"],
            "signal": run["signal"],
            "stdout": run["stdout"],
            "log": [[level, file, plain(text)] for level, file, text in run["log"]],
            "parser": run["parser"],
            "other_stderr": [line for line in run["other_stderr"] if not line.startswith(_RUNTIME)],
        }
        for run in got.values["runs"]
    ]
    files = {plain(name): {} if timed else entry for name, entry in got.values["files"].items()}
    return Written({"runs": runs, "files": files})


_FORMS: dict[str, Callable[[Case, Recording], Written]] = {
    "rng": _rng,
    "blob": _blob,
    "syncedmem": _syncedmem,
    "transform": _transform,
    "upgrade": _upgrade,
    "dbtool": _dbtool,
    "cli": _cli,
}
