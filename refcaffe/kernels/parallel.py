"""Work shared out to a few threads, one pool for the process, with BLAS on one thread meanwhile.

What is computed never depends on the number of threads: they only take numbered pieces of work, whose borders the
caller fixes, and sums over pieces are made in the order of their numbers. Pieces are worth handing out if they are
array code or kernels that run without the GIL, of 0.1 ms or more.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from functools import cache, wraps
from math import prod
from queue import SimpleQueue
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refcaffe.device.room import host_block

GRAIN = 1 << 17  # elements that a kernel is worth handing out for
WORKER_NAME = "refcaffe-worker"

F = TypeVar("F", bound=Callable[..., Any])


class _Job:
    """The numbers 0 ... count - 1, for whoever works on them. After an error, which ``failed`` is told, no more."""

    def __init__(self, count: int, body: Callable[[int], Any], failed: Callable[[], Any] | None) -> None:
        self._body, self._count, self._failed = body, count, failed
        self._next = 0
        self._error: BaseException | None = None
        self._state = threading.Condition()
        self._at_work = 0
        self._over = False

    def work(self) -> None:
        """Take numbers until none is left."""
        with self._state:
            if self._over:
                return
            self._at_work += 1
        _local.working = True
        try:
            while (i := self._take()) is not None:
                self._body(i)
        except BaseException as error:  # handed to the caller
            self._fail(error)
        finally:
            _local.working = False
            with self._state:
                self._at_work -= 1
                self._state.notify_all()

    def _take(self) -> int | None:
        with self._state:
            i = self._next
            self._next += 1
        return i if i < self._count and self._error is None else None

    def _fail(self, error: BaseException) -> None:
        self._error = self._error or error
        if self._failed is not None:
            self._failed()

    def finish(self) -> None:
        """Wait for the others; raises what a piece raised. Who comes later has nothing to do."""
        with self._state:
            self._over = True
            self._state.wait_for(lambda: not self._at_work)
        if self._error is not None:
            raise self._error


class _Local(threading.local):
    working = False
    calculating = False

    def __init__(self) -> None:
        self.scratch: dict[tuple[str, Any], NDArray[Any]] = {}


_local = _Local()


class _Pool:
    """Threads that wait for jobs. They are started when first needed and ended at exit."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def run(self, job: _Job, helpers: int) -> None:
        if len(self._threads) < self.size - 1:
            self._start()
        for _ in range(helpers):
            self._queue.put(job)
        job.work()
        job.finish()

    def _start(self) -> None:
        with self._lock:
            for number in range(len(self._threads) + 1, self.size):
                thread = threading.Thread(target=self._serve, name=f"{WORKER_NAME}-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _serve(self) -> None:
        with np.errstate(all="ignore"):  # as in the layers: infinities and not-a-numbers are results
            while (job := self._queue.get()) is not None:
                job.work()
                del job  # so that its arrays go when it is done

    def close(self) -> None:
        """End the threads and wait until they have."""
        with self._lock:
            for _ in self._threads:
                self._queue.put(None)
            for thread in self._threads:
                thread.join()
            self._threads.clear()
            self.size = 1  # who still holds this pool works alone


def _default_size() -> int:
    given = os.environ.get("REFCAFFE_NUM_THREADS", "")
    if given:
        return max(1, int(given))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_pool = _Pool(_default_size())


def num_threads() -> int:
    """How many threads work at the same time, the caller's included."""
    return _pool.size


def set_num_threads(count: int) -> None:
    """Use so many threads from now on; at first ``REFCAFFE_NUM_THREADS``, or one per core that the process may use."""
    global _pool
    before, _pool = _pool, _Pool(max(1, count))
    before.close()


def _forget_threads() -> None:
    """A forked process has only the thread that forked; it starts its own."""
    global _pool
    _pool = _Pool(_pool.size)
    _local.working = _local.calculating = False
    one_blas_thread.reset()


def _end_threads() -> None:
    _pool.close()


atexit.register(_end_threads)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)


def for_each(
    count: int, body: Callable[[int], Any], worthwhile: bool = True, failed: Callable[[], Any] | None = None
) -> None:
    """``body(i)`` for i = 0 ... count - 1, in any order, several at the same time. Raises what a body raises.

    If it is not ``worthwhile``, or inside of a body, it is a plain loop. Who finds the others busy works alone.
    ``failed`` is called where a body raises, while others may still be at work.
    """
    helpers = min(_pool.size, count) - 1
    if helpers < 1 or not worthwhile or _local.working:
        for i in range(count):
            body(i)
        return
    _pool.run(_Job(count, body, failed), helpers)


def for_ranges(size: int, grain: int, body: Callable[[int, int], Any]) -> None:
    """``body(start, stop)`` over ranges of ``grain`` numbers, the last one shorter, that make up 0 ... size - 1."""
    if size <= grain:
        body(0, size)
        return
    for_each(-(-size // grain), lambda i: body(i * grain, min(i * grain + grain, size)))


def copy(source: NDArray[Any], target: NDArray[Any]) -> None:
    """``target`` = ``source``: as many elements, contiguous in ``target``."""
    given, to = source.reshape(-1), target.reshape(-1)
    for_ranges(to.size, GRAIN, lambda i, j: np.copyto(to[i:j], given[i:j]))


def in_order(count: int, compute: Callable[[int], Any], commit: Callable[[Any], Any], worthwhile: bool = True) -> None:
    """``commit(compute(i))`` for i = 0 ... count - 1; computed as by ``for_each``, committed one after the other."""
    turn = threading.Condition()
    now, over = 0, False

    def body(i: int) -> None:
        nonlocal now
        result = compute(i)
        with turn:
            turn.wait_for(lambda: now == i or over)
            if not over:
                commit(result)
            now += 1
            turn.notify_all()

    def failed() -> None:
        nonlocal over
        with turn:
            over = True
            turn.notify_all()

    for_each(count, body, worthwhile, failed)


def scratch(name: str, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array of anything, in this thread's memory of that name; it is valid until the thread asks for it again."""
    dtype = np.dtype(dtype)
    count = prod(shape)
    held = _local.scratch.get((name, dtype))
    if held is None or held.size < count:
        held = _local.scratch[name, dtype] = host_block(count * dtype.itemsize, clear=False).view(dtype)
    return held[:count].reshape(shape)


# --- BLAS


@cache
def _blas_libraries() -> list[Any]:
    from threadpoolctl import ThreadpoolController  # looks at every loaded library: milliseconds, once

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneBlasThread:
    """A ``with`` block inside of which BLAS uses one thread per call: its own threads wait by spinning.

    Any number of threads may be inside at a time; the last one to leave puts back what was there before.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: list[int] = []

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._before = [library.get_num_threads() for library in _blas_libraries()]
                self._set([1] * len(self._before))

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                self._set(self._before)

    def _set(self, counts: list[int]) -> None:
        for library, count in zip(_blas_libraries(), counts, strict=True):
            library.set_num_threads(count)


one_blas_thread = _OneBlasThread()


def calculation(function: F) -> F:
    """Decorator for what computes: with BLAS on one thread, and infinities and not-a-numbers are results, as in C.

    A few microseconds, or next to nothing inside of another such function.
    """

    @wraps(function)
    def calculate(*args: Any, **options: Any) -> Any:
        if _local.calculating:
            return function(*args, **options)
        _local.calculating = True
        try:
            with one_blas_thread, np.errstate(all="ignore"):
                return function(*args, **options)
        finally:
            _local.calculating = False

    return cast(F, calculate)
