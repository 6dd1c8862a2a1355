"""Kind ``dbtool``: the tools around databases (FORMAT-dbtool.md), as processes.

What is compared:

* exit status or signal, the fatal message (where the original died of a C++ exception, the engine may have one),
  warnings and errors; of messages of several lines the first, where only that was recorded; the information lines that
  carry counts or results;
* the records that databases hold: keys, fields and numbers exactly. Where pixels depend on a codec or a resize, they
  may be ``CODEC_LEVELS`` off, and files that were made anew are compared by their pixels, if they are lossless. Where
  a tool was ended, the original may leave an empty database and the engine none;
* blobs in files. Features that went through BLAS: within the bound of ``operations.spread``.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.databases import make_databases
from conformance.engines import Engine
from conformance.engines.pipeline import Pipeline
from conformance.files import fresh_folder, working_directory
from conformance.images import CODEC_LEVELS
from conformance.operations.spread import Spread
from conformance.outcome import Findings

_RESULTS = re.compile(
    r"A total of |Processed |Number of channels: |mean_value channel |Decoding Datum|encode_type specified|Rows: "
)
_MEAN = re.compile(r"(mean_value channel \[\d+\]:).*")
_LOSSLESS = (b"\x89PNG", b"BM")  # how files begin
_NATIVE = -1
_FIELDS = ("channels", "height", "width", "label", "encoded")
_LEGACY = ("num", "channels", "height", "width")


def play(case: Case, engine: Engine) -> Recording:
    """What a case records, by the same names."""
    given = case.given
    with fresh_folder(case) as folder, engine.pipeline(case.upstream, case.mode) as caffe, working_directory(folder):
        make_databases(case, caffe)
        run = engine.programs(case.upstream).run(given["tool"], given["args"], folder)
        got = Recording({"exit": "abort" if run["signal"] else run["exit"]})
        lines = run["log"]
        got.values["log"] = [[level, text] for level, _, text in lines if level in "WE"]
        got.values["said"] = [text for level, _, text in lines if level == "I" and _RESULTS.match(text)]
        got.values["fatal"] = next((text for level, _, text in lines if level == "F"), None)
        got.values["python"] = run["python"]
        got.values["dbs"] = {
            name: _read_database(name, backend, engine, caffe, got)
            for name, backend in (given.get("read") or {}).items()
            if Path(name).exists()
        }
        got.values["blobs"] = {name: _read_blob(name, engine, got) for name in given.get("read_blobs") or ()}
    return got


def _read_database(name: str, backend: str, engine: Engine, caffe: Pipeline, got: Recording) -> list[dict[str, Any]]:
    """The records; their numbers go to ``got.arrays``."""
    found = []
    for i, (key, value) in enumerate(caffe.read_database(name, backend)):
        datum = engine.message("Datum", "")
        datum.ParseFromString(value)
        record: dict[str, Any] = {"key": key.decode("utf-8", "surrogateescape")}
        record |= {field: getattr(datum, field) for field in _FIELDS if datum.HasField(field)}
        prefix = f"{name}/{i:03d}"
        if datum.HasField("data"):
            record["data"] = len(datum.data)
            data = got.arrays[f"{prefix}/data"] = np.frombuffer(datum.data, np.uint8)
            pixels = caffe.pixels(data, _NATIVE) if datum.encoded else None
            if pixels is not None:
                got.arrays[f"{prefix}/pixels"] = pixels
        if len(datum.float_data):
            record["float_data"] = len(datum.float_data)
            got.arrays[f"{prefix}/float_data"] = np.array(datum.float_data, np.float32)
        found.append(record)
    return found


def _read_blob(name: str, engine: Engine, got: Recording) -> Any:
    path = Path(name)
    if not path.is_file():
        return "absent"
    proto = engine.message("BlobProto", "")
    proto.ParseFromString(path.read_bytes())
    got.arrays[name] = np.array(proto.data, np.float32)
    return {field: getattr(proto, field) for field in _LEGACY if proto.HasField(field)} | {
        "shape": list(proto.shape.dim)
    }


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """By the rules above."""
    recorded, values = case.recorded.values, got.values
    findings.value("exit", recorded["exit"], values["exit"])
    if recorded["exit"] != "abort" or "fatal" in recorded:
        findings.value("fatal", *((side.get("fatal") or "").rstrip() for side in (recorded, values)))
    findings.value("exceptions of Python", [], values.get("python", []))
    said = [recorded.get("said", []), values.get("said", [])]
    if case.exactness() == "codec":  # the arrays are compared
        said = [[_MEAN.sub(r"\1", text) for text in side] for side in said]
    findings.value("said", *said)
    log = [[level, text.split("\n")[0]] for level, text in values.get("log", [])]
    findings.value("log", [[level, text.split("\n")[0]] for level, text in recorded.get("log", [])], log)
    findings.value("blobs", recorded.get("blobs", {}), values.get("blobs", {}))
    _judge_databases(case, got, findings)
    _judge_arrays(case, got, findings)


def _judge_databases(case: Case, got: Recording, findings: Findings) -> None:
    databases = {**got.values.get("dbs", {})}
    for name, recorded in case.recorded.values.get("dbs", {}).items():
        if not recorded and case.recorded.values["exit"] == "abort":
            databases.setdefault(name, [])
        anew = case.exactness() == "codec"
        sides = ([_comparable(record, anew) for record in side] for side in (recorded, databases.get(name, ())))
        findings.value(f"dbs.{name}", *sides)
    missing = [name for name in case.recorded.values.get("dbs", {}) if name not in databases]
    findings.value("databases that are not there", [], missing)


def _comparable(record: dict[str, Any], anew: bool) -> dict[str, Any]:
    """How long a file is that was made anew is the codec's affair."""
    return {key: value for key, value in record.items() if not (anew and key == "data" and record.get("encoded"))}


def _judge_arrays(case: Case, got: Recording, findings: Findings) -> None:
    recorded, codec = case.recorded.arrays, case.exactness() == "codec"
    findings.value("arrays", sorted(recorded), sorted(got.arrays))
    for name, expected in recorded.items():
        array = got.arrays.get(name)
        if array is None:
            continue
        prefix, _, what = name.rpartition("/")
        encoded = f"{prefix}/pixels" in recorded
        if codec and encoded:
            _judge_file(name, what, prefix, case, got, findings)
        elif codec:
            findings.array(name, expected, array, "codec", CODEC_LEVELS)
        elif case.exactness(name.partition("/")[0]) == "blas":
            findings.array(name, expected, array, "blas", Spread(case).bound(name, expected))
        else:
            findings.array(name, expected, array)


def _judge_file(name: str, what: str, prefix: str, case: Case, got: Recording, findings: Findings) -> None:
    """An image file in a record: if its bytes are not the recorded ones, its pixels count, unless it is lossy."""
    data, own = (arrays[f"{prefix}/data"] for arrays in (case.recorded.arrays, got.arrays))
    lossless = np.array_equal(data, own) or data.tobytes().startswith(_LOSSLESS)
    if what == "pixels":
        expected, array = case.recorded.arrays[name], got.arrays[name]
        if lossless:
            findings.array(name, expected, array, "codec", CODEC_LEVELS)
        else:
            findings.value(f"{name}: shape", expected.shape, array.shape)
