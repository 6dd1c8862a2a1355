"""``conformance record``: record cases anew from an original Caffe, and say which came out the same."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from conformance.cases import Case
from conformance.engines.original import OriginalEngine
from conformance.outcome import Unsupported
from conformance.record import record_pycaffe, suite

DESCRIPTION = """\
Record cases anew from an original Caffe. Kinds layer, filler, net, solver, snapshot, error and data go through its
pycaffe (--python); rng, transform, and syncedmem and blob of CPU-only builds through programs of this suite that are
built against its library (--programs); upgrade, cli and dbtool through Caffe's own programs (--tools). The cases are
written to --out, in the same layout, with record.json, which says of each whether it came out the same.
"""
EPILOG = "exit status: 0 all cases were recorded; 1 some were not, and why is said; 2 wrong usage"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``record``, beside those that choose cases."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write the cases")
    parser.add_argument("--python", metavar="COMMAND", help="a Python that can import caffe")
    parser.add_argument(
        "--inside", type=Path, metavar="DIR", help="folder with the module caffe_inside, built for that Python"
    )
    parser.add_argument("--programs", type=Path, metavar="DIR", help="folder with the programs record_rng …")
    parser.add_argument("--tools", type=Path, metavar="DIR", help="folder with Caffe's own programs")
    parser.add_argument(
        "--upstream",
        default="local",
        metavar="NAME",
        help="what the cases call this Caffe, a key of the provenance.json that is written (default: %(default)s)",
    )
    parser.add_argument("--source", default="unknown", help="for provenance.json: where this Caffe is from")
    parser.add_argument("--build", default="unknown", help="for provenance.json: how it was built")
    parser.add_argument("--version", default="1.0.0", help="what `caffe --version` says (default: %(default)s)")
    parser.add_argument(
        "--spread",
        metavar="CORE,CORE",
        help="run nets and solvers again with these kernels of OpenBLAS and record how far they move",
    )


def run(cases: Sequence[Case], arguments: argparse.Namespace) -> int:
    """Record the cases; returns the exit status."""
    arguments.out.mkdir(parents=True, exist_ok=True)
    through_pycaffe = [case for case in cases if case.kind in record_pycaffe.KINDS]
    entries: dict[str, dict[str, Any]] = {}
    if through_pycaffe and arguments.python:
        entries |= _through_pycaffe(through_pycaffe, arguments)
    else:
        reason = "a Python with caffe, which is given by --python"
        entries |= {case.id: _not_recorded(reason) for case in through_pycaffe}
    engine = OriginalEngine(arguments.programs, arguments.tools, arguments.version)
    for case in cases:
        if case not in through_pycaffe:
            entries[case.id] = _on_engine(case, engine, arguments)
            print(_line(case.id, entries[case.id]), flush=True)
    _note(entries, arguments)
    return _summary(entries)


def _not_recorded(reason: str) -> dict[str, Any]:
    return {"status": record_pycaffe.UNREACHED, "reason": f"it needs {reason}"}


def _through_pycaffe(cases: Sequence[Case], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Run ``record_pycaffe.py`` under the Python given; the entries of its record.json."""
    options = {
        "--out": arguments.out,
        "--upstream": arguments.upstream,
        "--source": arguments.source,
        "--build": arguments.build,
        "--inside": arguments.inside,
        "--tools": arguments.tools,
        "--spread": arguments.spread,
        "--launcher": arguments.python,
    }
    words = [str(word) for key, value in options.items() if value is not None for word in (key, value)]
    script = Path(record_pycaffe.__file__).resolve()
    folders = [str(case.folder) for case in cases]
    # Only the processes that play a case import caffe: any Python can lead them, and this one is there.
    subprocess.run([sys.executable, str(script), *words, "--", *folders], check=True)
    return json.loads((arguments.out / "record.json").read_text(encoding="utf-8"))["cases"]


def _on_engine(case: Case, engine: OriginalEngine, arguments: argparse.Namespace) -> dict[str, Any]:
    target = arguments.out / case.kind / case.name
    if target.resolve() == case.folder.resolve():
        return _not_recorded("another --out: this one would write over the case itself")
    try:
        found = suite.write(case, suite.record(case, engine), target, arguments.upstream)
    except Unsupported as missing:
        return _not_recorded(str(missing))
    if not found:
        return {"status": "same"}
    known = case.document["recorded"] or (case.folder / "recorded.npz").is_file()
    return {"status": "differs" if known else "new", "in": found[:20]}


def _line(name: str, entry: dict[str, Any]) -> str:
    more = f": {entry['reason']}" if "reason" in entry else f" in {', '.join(entry['in'])}" if "in" in entry else ""
    return f"{name}: {entry['status']}{more}"


def _note(entries: dict[str, dict[str, Any]], arguments: argparse.Namespace) -> None:
    """record.json of all cases, and a provenance.json that knows the Caffe."""
    path = arguments.out / "record.json"
    document = json.loads(path.read_text(encoding="utf-8")) if path.is_file() and arguments.python else {}
    record_pycaffe.write_json(str(path), {**document, "cases": entries})
    path = arguments.out / "provenance.json"
    if not path.is_file():
        entry = {"source": arguments.source, "version": arguments.version, "build": arguments.build}
        record_pycaffe.write_json(str(path), {"upstreams": {arguments.upstream: entry}})


def _summary(entries: dict[str, dict[str, Any]]) -> int:
    count = Counter(entry["status"] for entry in entries.values())
    print(", ".join(f"{number} {status}" for status, number in sorted(count.items())))
    missing = Counter(entry["reason"] for entry in entries.values() if "reason" in entry)
    for reason, number in missing.most_common():
        print(f"  {number} not recorded: {reason}")
    return int(bool(missing))
