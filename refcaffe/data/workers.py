"""The threads that carry out what was planned: however many they are, the result is the same."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np

from refcaffe.kernels.parallel import WORKER_NAME, num_threads

J = TypeVar("J")


def _default_count() -> int:
    given = os.environ.get("REFCAFFE_DATA_WORKERS", "")
    return max(1, int(given)) if given else num_threads()


class _Pool:
    """The helpers of the threads that prefetch; one pool serves them all."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._executor: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, work: Callable[[], None], times: int) -> list[Callable[[], None]]:
        """Have it done so often; returns functions that wait for one of them, unless it has not begun."""
        with self._lock:
            if times < 1 or self._closed:
                return []
            if self._executor is None:
                self._executor = ThreadPoolExecutor(self.count - 1, f"{WORKER_NAME}-data")
            futures = [self._executor.submit(work) for _ in range(times)]
        return [lambda future=future: future.cancel() or future.result() for future in futures]  # type: ignore[misc]

    def close(self) -> None:
        with self._lock:
            self._closed = True
        if self._executor is not None:
            self._executor.shutdown()


_pool = _Pool(_default_count())


def num_workers() -> int:
    """How many threads prepare the images of a batch, the prefetching one included."""
    return _pool.count


def set_num_workers(count: int) -> None:
    """Let so many threads prepare images from now on; at first ``REFCAFFE_DATA_WORKERS``, or as many as compute."""
    global _pool
    before, _pool = _pool, _Pool(max(1, count))
    before.close()


def _forget_threads() -> None:
    global _pool
    _pool = _Pool(_pool.count)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


class _Shared(Generic[J]):
    """Jobs for whoever works on them, in order."""

    def __init__(self, jobs: Sequence[J], work: Callable[[J], None]) -> None:
        self._jobs: Iterator[tuple[int, J]] = enumerate(jobs)
        self._work = work
        self._lock = threading.Lock()
        self.errors: dict[int, BaseException] = {}

    def run(self) -> None:
        """Take jobs until none is left, or one has failed."""
        with np.errstate(all="ignore"):  # infinities and not-a-numbers are values, as in C
            while True:
                with self._lock:
                    number, job = next(self._jobs, (-1, None))
                    if number < 0 or self.errors:
                        return
                try:
                    self._work(job)  # type: ignore[arg-type]
                except BaseException as error:  # handed to the caller
                    self.errors[number] = error


def for_each(jobs: Sequence[J], work: Callable[[J], None]) -> None:
    """``work(job)`` for each job, several at the same time; raises the error of the first job that failed."""
    shared = _Shared(jobs, work)
    waits = _pool.submit(shared.run, min(_pool.count, len(jobs)) - 1)
    shared.run()
    for wait in waits:
        wait()
    if shared.errors:
        raise shared.errors[min(shared.errors)]
