"""What one input costs the process: memory, processor time, threads, open files. Linux only."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from refcaffe.kernels.parallel import WORKER_NAME

ROOM = 64 << 20  # bytes that every input may take, besides four times its size
CPU_SECONDS = 5
WALL_SECONDS = 60  # for those that wait for something; more, since others use the machine, too
_MMAP_THRESHOLD = -3
_SLACK = 4 << 20  # bytes: what is taken again is known roughly
_PATIENCE = 2.0  # seconds
_untouched_at_first: int | None = None  # not known until ``arm``


@dataclass
class Cost:
    """``grown``: how far the process's resident memory went above what it was; ``left``: what should have gone."""

    grown: int = 0
    seconds: float = 0.0
    left: str = ""


def map_arrays() -> None:
    """From now on map arrays one by one, so that the system's count of writable memory means what is in use."""
    ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 1 << 16)


def arm() -> None:
    """Have the process killed, and its stacks shown, if the time that ``watched`` gives is over."""
    global _untouched_at_first
    _untouched_at_first = _untouched()
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, all_threads=True, chain=True)


def tidy() -> None:
    """Give back what was freed, and take the rest for granted."""
    gc.collect()
    gc.freeze()
    ctypes.CDLL(None).malloc_trim(0)


def _status(name: str) -> int:
    """Bytes, by the name in ``/proc/self/status``: VmRSS what is resident, VmHWM its peak, VmData what is writable."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def _untouched() -> int:
    """Bytes that are writable and not resident: those of stacks, and what was freed and may be taken again."""
    return _status("VmData") - _status("RssAnon")


def _foreign_threads() -> list[str]:
    known = (threading.main_thread().name, WORKER_NAME)
    return [thread.name for thread in threading.enumerate() if not thread.name.startswith(known)]


def _open_files() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:  # the listing's own
            continue
    return sorted(found)


def _left(files: list[str]) -> str:
    threads, more = _foreign_threads(), [name for name in _open_files() if name not in files]
    return "; ".join(f"{what} {names}" for what, names in (("threads", threads), ("open files", more)) if names)


def _left_at_last(files: list[str]) -> str:
    """What is left when other threads have had the time to let go of it."""
    patience = time.monotonic() + _PATIENCE
    while (left := _left(files)) and time.monotonic() < patience:
        gc.collect()
        time.sleep(0.01)
    return left


@contextmanager
def watched(size: int) -> Iterator[Cost]:
    """The cost of a block that handles ``size`` bytes; it gets MemoryError where it wants too much.

    Whatever takes longer than ``CPU_SECONDS`` ends the process.
    """
    cost, files = Cost(), _open_files()
    allowed = ROOM + 4 * size
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts anew
    before, start = _status("VmRSS"), time.process_time()
    limit = resource.getrlimit(resource.RLIMIT_DATA)
    freed = 0 if _untouched_at_first is None else max(0, _untouched() - _untouched_at_first)
    faulthandler.dump_traceback_later(WALL_SECONDS, exit=True)
    signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (_status("VmData") + allowed - _SLACK - freed, limit[1]))
    try:
        yield cost
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limit)
        signal.setitimer(signal.ITIMER_PROF, 0)
        faulthandler.cancel_dump_traceback_later()
        cost.seconds = time.process_time() - start
        cost.grown = max(0, _status("VmHWM") - before)
        cost.left = _left_at_last(files)
        if cost.grown > allowed:
            cost.left = "; ".join(filter(None, (cost.left, f"memory grew by {cost.grown} bytes")))
