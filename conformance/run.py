"""Running cases: one, or many in order, in this process or in several."""

from __future__ import annotations

import multiprocessing
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from conformance import kinds
from conformance.cases import Case, CaseError
from conformance.device_formulas import leniency
from conformance.engines import Engine, make_engine
from conformance.outcome import Findings, Outcome, Status, Unsupported


def run_case(case: Case, engine: Engine) -> Outcome:
    """Play one case on the engine and judge it. Whatever goes wrong is part of the outcome."""
    started = time.perf_counter()
    lenient = leniency(case, engine.device)
    findings = Findings(lenient)
    status, reason = Status.FAILED, ""
    try:
        if case.problem:
            raise CaseError(case.problem)
        kind = kinds.find(case.kind)
        fresh = case.fresh()  # so that its arrays go when it is done
        got = engine.recording(fresh, kind.play)
        if not lenient.refusal:
            kind.judge(fresh, got, findings)
        reason = lenient.reasons
        status = Status.FAILED if findings.count else Status.PASSED
    except Unsupported as missing:
        status, reason = Status.UNSUPPORTED, str(missing)
    except CaseError as error:
        reason = f"broken case: {error}"
    except Exception as error:  # one case's crash must not end the run
        reason = _unexpected(error)
    return Outcome(
        case.kind, case.name, status, reason, findings.differences, findings.count, findings.comparisons,
        findings.worst, time.perf_counter() - started,
    )  # fmt: skip


def _unexpected(error: Exception) -> str:
    """An exception that no recording asks for, with the innermost line it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{at}"


def run_cases(cases: Sequence[Case], engine_name: str, device: str, processes: int = 1) -> Iterator[Outcome]:
    """Run cases, in order, giving each outcome when it is there. Each process makes an engine of its own."""
    if processes <= 1 or len(cases) <= 1:
        engine = make_engine(engine_name, device)
        for case in cases:
            yield run_case(case, engine)
        return
    fresh_processes = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, fresh_processes, _start_worker, (engine_name, device))
    try:
        with _interrupts_ignored():
            outcomes = pool.map(_work, cases)
        yield from outcomes
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Processes started inside ignore Ctrl-C, which a terminal sends to all of them: it is this process's to handle."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


_engine: Engine | None = None  # a worker's own


def _start_worker(engine_name: str, device: str) -> None:
    global _engine
    _engine = make_engine(engine_name, device)


def _work(case: Case) -> Outcome:
    assert _engine is not None
    return run_case(case, _engine)
