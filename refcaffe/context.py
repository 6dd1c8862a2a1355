"""The state each thread has for itself (upstream: ``Caffe::Get()``), and threads that inherit it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from refcaffe.checks import Checker
from refcaffe.rng import Stream

_check = Checker("internal_thread.cpp")


class Mode(Enum):
    """Where layers compute."""

    CPU = 0
    GPU = 1


@dataclass(frozen=True)
class Build:
    """Which Caffe is reproduced, where two of them differ.

    ``reader_era``: the last Caffe with ``DataReader`` (January 2017) instead of 1.0; what a process begins with if
    ``REFCAFFE_READER_ERA`` is in its environment. ``debug``: compiled with DEBUG. A build without a GPU (CPU_ONLY)
    is the host runtime of ``refcaffe.device``.
    """

    reader_era: bool = False
    debug: bool = False


_build = Build(reader_era=bool(os.environ.get("REFCAFFE_READER_ERA")))


def current_build() -> Build:
    """The Caffe that is reproduced now, in every thread."""
    return _build


@contextmanager
def build(reader_era: bool = False, debug: bool = False) -> Iterator[Build]:
    """Reproduce another Caffe inside a ``with`` block, for the whole process."""
    global _build
    before, _build = _build, Build(reader_era, debug)
    try:
        yield _build
    finally:
        _build = before


def entropy() -> int:
    """A seed that nobody chose."""
    return int.from_bytes(os.urandom(4), "little")


@dataclass
class Context:
    """One thread's mode, device, place among the solvers and random stream.

    The device's random generator is the runtime's to make (``Runtime.generator``); its seed is kept here. None: any.
    """

    mode: Mode = Mode.CPU
    device: int = 0
    solver_count: int = 1
    solver_rank: int = 0
    multiprocess: bool = False
    generator: Any = field(default=None, repr=False)
    generator_seed: int | None = None
    _stream: Stream | None = field(default=None, repr=False)

    @property
    def root_solver(self) -> bool:
        """Whether this thread serves the solver that logs, tests and snapshots."""
        return self.solver_rank == 0

    @property
    def stream(self) -> Stream:
        """The thread's random stream; one that nobody seeded starts anywhere."""
        if self._stream is None:
            self._stream = Stream(entropy())
        return self._stream

    def set_random_seed(self, seed: int) -> None:
        """Start the random stream and the device's generator anew; ``seed`` is an ``unsigned int``, so modulo 2**32."""
        self.generator_seed = seed & 0xFFFFFFFF
        self.generator = None
        self._stream = Stream(self.generator_seed)

    def lose_generator(self) -> None:
        """Another device has another generator, which starts anywhere, whatever was seeded before."""
        self.generator = self.generator_seed = None


class _Local(threading.local):
    def __init__(self) -> None:
        self.context = Context()


_local = _Local()


def current() -> Context:
    """This thread's context; a thread that has none yet gets the default one."""
    return _local.context


class InternalThread:
    """A thread that starts as upstream's do: with the starter's mode, device and place among the solvers,

    and a random stream seeded by one word of the starter's. ``entry`` is called with this object and should
    return soon after ``must_stop`` is true; ``on_stop`` wakes it if it waits for something.
    """

    def __init__(self, entry: Callable[[InternalThread], None], on_stop: Callable[[], None], name: str) -> None:
        self._entry = entry
        self._on_stop = on_stop
        self._name = name
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def started(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def must_stop(self) -> bool:
        return self._stopping.is_set()

    def start(self) -> None:
        """Start; draws one word of the caller's random stream."""
        _check(not self.started, "!is_started()", "Threads should persist and not be restarted.")
        here = current()
        inherited = Context(here.mode, here.device, here.solver_count, here.solver_rank, here.multiprocess)
        inherited.set_random_seed(here.stream.raw())
        self._stopping.clear()
        self._thread = threading.Thread(target=self._run, args=(inherited,), name=self._name, daemon=True)
        self._thread.start()

    def _run(self, inherited: Context) -> None:
        _local.context = inherited
        self._entry(self)

    def stop(self, patience: float | None = None) -> None:
        """Ask the thread to end and wait until it has, ``patience`` seconds at most; harmless if it never started."""
        self._stopping.set()
        self._on_stop()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)
        self._thread = None
