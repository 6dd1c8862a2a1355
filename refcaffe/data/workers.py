"""The threads that carry out what was planned: however many they are, the result is the same."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import Generic, TypeVar

import numpy as np

from refcaffe.kernels.parallel import WORKER_NAME, num_threads

J = TypeVar("J")
R = TypeVar("R")
_AHEAD = 4  # jobs that wait for each helper, so that it need not


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
    """Jobs for whoever works on them, in order; there may be more to come."""

    def __init__(self, work: Callable[[J], None]) -> None:
        self._jobs: SimpleQueue[tuple[int, J] | None] = SimpleQueue()  # None: for one of the workers there is no more
        self._work = work
        self._count = 0
        self.errors: dict[int, BaseException] = {}

    def add(self, job: J) -> None:
        self._jobs.put((self._count, job))
        self._count += 1

    def fail(self, error: BaseException) -> None:
        """There is no next job, because of an error."""
        self.errors[self._count] = error

    def end(self, workers: int) -> None:
        """There are no more jobs."""
        for _ in range(workers):
            self._jobs.put(None)

    @property
    def waiting(self) -> int:
        """Jobs that nobody works on."""
        return self._jobs.qsize()

    def run_one(self) -> bool:
        """Do a job, or nothing if one before it has failed; waits for it; False at the end."""
        taken = self._jobs.get()
        if taken is None:
            return False
        number, job = taken
        if number < min(self.errors, default=number + 1):
            try:
                self._work(job)
            except BaseException as error:  # handed to the caller
                self.errors[number] = error
        return True

    def run(self) -> None:
        """Do jobs until there are no more."""
        with np.errstate(all="ignore"):  # infinities and not-a-numbers are values, as in C
            while self.run_one():
                pass


def for_each(jobs: Iterable[J], work: Callable[[J], None]) -> None:
    """``work(job)`` for each job, several at the same time; raises the error of the first job that failed.

    ``jobs`` may be made one by one: the caller works, too, as soon as the others have something to do.
    """
    shared = _Shared(work)
    waits = _pool.submit(shared.run, _pool.count - 1)
    try:
        with np.errstate(all="ignore"):
            for job in jobs:
                shared.add(job)
                if shared.waiting > _AHEAD * len(waits):
                    shared.run_one()
                if shared.errors:
                    break
    except BaseException as error:  # behind what came before it
        shared.fail(error)
    shared.end(len(waits) + 1)
    shared.run()
    for wait in waits:
        wait()
    if shared.errors:
        raise shared.errors[min(shared.errors)]


def in_advance(items: Iterable[J], work: Callable[[J], R]) -> Iterator[R]:
    """``work(item)`` for each item, in order; several are worked on before they are asked for."""
    ahead = _AHEAD * _pool.count
    with ThreadPoolExecutor(_pool.count, f"{WORKER_NAME}-data") as executor:
        waiting: deque[Future[R]] = deque()
        try:
            for item in items:
                waiting.append(executor.submit(work, item))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            executor.shutdown(cancel_futures=True)
