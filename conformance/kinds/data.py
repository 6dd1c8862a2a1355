"""Kind ``data``: the data layers (FORMAT-data.md).

Cases of which another build gave the same are run as that build, too. Where pixels depend on a library, those that
were recorded stand for the engine's own, which must be within ``CODEC_LEVELS`` of them; windows that are resized are
compared within ``RESIZE_LEVELS``.

An engine that tells of an error on the prefetch thread only later is asked for it at the end.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.compare import libm_bound
from conformance.data_steps import DataRun
from conformance.databases import make_databases, records
from conformance.engines import Engine
from conformance.engines.pipeline import Pipeline
from conformance.files import fresh_folder, working_directory
from conformance.images import RESIZE_LEVELS, judge_decoded
from conformance.outcome import Findings

_SCALE = re.compile(r"\bscale:\s*([-+.\de]+)")

Pixels = list[tuple[str, bytes | str, np.ndarray]]  # names of arrays, bytes or name of the file, what is in it


def play(case: Case, engine: Engine) -> Recording:
    """What a case records, by the same names; ``values["also"]``: what other builds give, by their names.

    ``values["decoded"]``: recorded pixels, and the engine's own, by the bytes or the name of the file.
    """
    got = _play(case, engine, case.upstream)
    document = case.document
    others = [*document.get("also", ()), *document.get("also_except", ())]
    got.values["also"] = {upstream: _play(case, engine, upstream) for upstream in others}
    return got


def _play(case: Case, engine: Engine, upstream: str) -> Recording:
    with fresh_folder(case) as folder, engine.pipeline(upstream, case.mode) as caffe, working_directory(folder):
        make_databases(case, caffe)
        pixels = _recorded_pixels(case, caffe)
        images = {key: array for _, key, array in pixels if isinstance(key, bytes)}
        files = {key: array for _, key, array in pixels if isinstance(key, str)}
        with caffe.recorded_codec(images, files) as own:
            run = DataRun(case, engine, caffe, folder)
            run.run()
    run.got.values["decoded"] = pixels, own
    return run.got


def _recorded_pixels(case: Case, caffe: Pipeline) -> Pixels:
    arrays, given = case.recorded.arrays, case.given
    found: Pixels = []
    for entry in given.get("decoded") or ():
        for i, (_, value) in enumerate(records(case, entry["arrays"])):
            if f"decoded/{i}" in arrays:
                found.append((f"decoded/{i}", caffe.datum(value).data.tobytes(), arrays[f"decoded/{i}"]))
    for entry in given.get("pixels") or ():
        if f"pixels/{entry['file']}" in arrays:
            found.append((f"pixels/{entry['file']}", entry["file"], arrays[f"pixels/{entry['file']}"]))
    return found


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """By the rules above."""
    _judge(case, got, (), "", findings)
    for upstream, other in got.values.get("also", {}).items():
        excepted = case.document.get("also_except", {}).get(upstream, ())
        _judge(case, other, excepted, f"as {upstream}: ", findings)


def _judge(case: Case, got: Recording, excepted: Any, label: str, findings: Findings) -> None:
    recorded, values = case.recorded.values, got.values
    findings.value(f"{label}threads left over", [], values.get("threads", []))
    findings.value(f"{label}fatal", *(side.get("fatal", "").rstrip() for side in (recorded, values)))
    asynchronous = bool(case.document.get("asynchronous"))
    if not asynchronous:  # else when it ended was left to chance
        for key in ("built_shapes", "rng_next", "shapes", "forwards", "exceptions", "log", "buffers"):
            if key == "buffers" and findings.lenient.device != "cpu":
                continue  # there tops take turns with device memory, and their host memory is their own
            if key not in excepted and (key in recorded or key in ("exceptions", "log")):
                sides = _section(key, recorded), _section(key, values)
                findings.value(label + key, *sides)
    pixels, own = values["decoded"]
    judge_decoded(case, [(label + name, key, array) for name, key, array in pixels], own, findings)
    names = [name for name in case.recorded.arrays if not name.startswith(("decoded/", "pixels/"))]
    if "fatal" not in recorded:  # else some may be missing
        findings.value(f"{label}arrays", sorted(names), sorted(got.arrays))
    for name in names:
        if name in got.arrays and name not in excepted:
            exactness, bound = _bound(case, name)
            findings.array(label + name, case.recorded.arrays[name], got.arrays[name], exactness, bound)


def _section(key: str, values: dict[str, Any]) -> Any:
    """A section, with one shape for each forward."""
    section = values.get(key, [])
    if key != "shapes":
        return section
    times = values["forwards"]
    return {name: shape if shape and isinstance(shape[0], list) else [shape] * times for name, shape in section.items()}


def _bound(case: Case, name: str) -> tuple[str, Any]:
    exactness = case.exactness(name.partition("/")[0])
    if exactness == "libm":
        return exactness, libm_bound("default", case.recorded.arrays[name])
    if exactness == "codec" and case.group == "window" and name == "data":
        found = _SCALE.search((case.folder / case.given["net"]).read_text(encoding="utf-8"))
        scale = abs(float(found[1])) if found else 1.0
        return exactness, RESIZE_LEVELS * scale * (1 + 2.0**-20)  # and the roundings behind the resize
    return "bitwise", 0.0
