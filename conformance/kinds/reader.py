"""Kind ``reader``: queues, DataReader, and records for several solvers (FORMAT-reader.md). Everything is exact.

Where the original died on another thread, the engine must fail with the same message, whenever it tells.
"""

from __future__ import annotations

from conformance.cases import Case, Recording
from conformance.databases import make_databases
from conformance.engines import Engine
from conformance.files import fresh_folder, working_directory
from conformance.outcome import Findings, Unsupported
from conformance.reader_operations import LayersRun, QueueRun, ReadersRun

_RUNS = {"DataReader": ReadersRun, "BlockingQueue": QueueRun, "layers": LayersRun}


def play(case: Case, engine: Engine) -> Recording:
    """``values["results"]``, until an operation is refused; ``values["fatal"]`` then has its number and the message."""
    kind = _RUNS.get(case.given["what"])
    if kind is None:
        raise Unsupported(f"the suite does not know what a {case.given['what']} is")
    with fresh_folder(case) as folder, engine.pipeline(case.upstream, case.mode) as caffe, working_directory(folder):
        make_databases(case, caffe)
        before = caffe.threads()
        caffe.set_random_seed(case.seed or 0)
        run = kind(caffe, case.given["ops"])
        try:
            run.run(bool(case.document.get("asynchronous")))
        except engine.Fatal as fatal:
            run.got.values["fatal"] = {"op": len(run.results), "text": fatal.message}
        finally:
            run.close()
        run.got.values["threads"] = sorted(thread.name for thread in caffe.threads() - before)
    return run.got


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """By the rules above."""
    recorded, values = case.recorded.values, got.values
    findings.value("threads left over", [], values.get("threads", []))
    fatal, refusal = dict(recorded.get("fatal") or {}), dict(values.get("fatal") or {})
    if fatal and "op" not in fatal:
        refusal.pop("op", None)
    findings.value("fatal", *({**side, "text": side.get("text", "").rstrip()} for side in (fatal, refusal)))
    results = values["results"]
    if case.document.get("asynchronous"):
        results = results[: len(recorded["results"])]
    findings.value("results", recorded["results"], results)
