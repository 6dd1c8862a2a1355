"""What a runner may ask of an engine.

An engine that offers these parts runs any kind of case step by step. One that can only run a whole case (an original
Caffe in a process of its own) overrides ``recording`` and hands back what that process recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np

from conformance.cases import Case, Recording
from conformance.engines.gpumode import GpuWorld
from conformance.engines.pipeline import Pipeline
from conformance.engines.pycaffe import Pycaffe
from conformance.outcome import Unsupported
from conformance.processes import Programs


class EngineError(Exception):
    """An engine, or the device it should use, is not there. The message says what is missing."""


class Memories(Protocol):
    """A fresh world of memory, as the kinds syncedmem and blob start from: nothing allocated, events recorded.

    Blobs and memories have the methods of ``refcaffe.Blob`` and ``refcaffe.syncedmem.SyncedMemory``.
    """

    stream: Any  # a stream that is not the default one

    def set_mode(self, mode: str) -> None: ...

    def set_device(self, device: int) -> None:
        """Make a device current, without an event."""

    def fail_next(self, function: str) -> None:
        """Let the next call of ``malloc``, ``cudaMallocHost`` or ``cudaMalloc`` fail."""

    def syncedmem(self, size: int | None) -> Any:
        """A SyncedMemory of ``size`` bytes; None: by the default constructor."""

    def blob(self, shape: list[int] | None, dtype: np.dtype) -> Any: ...

    def caller_host(self, array: np.ndarray) -> Any:
        """New host memory of the caller's (``u0``, ``u1`` …), holding the array's bytes."""

    def caller_device(self, array: np.ndarray) -> Any:
        """New memory of the caller's on the current device (``v0``, ``v1`` …)."""

    def sides(self, memory: Any) -> tuple[Any, Any]:
        """Host and device block of a SyncedMemory as they are, None where there is none."""

    def read(self, block: Any) -> np.ndarray:
        """A copy of a block's bytes."""

    def write(self, block: Any, data: np.ndarray) -> None:
        """Overwrite the first bytes of a block."""

    def name(self, block: Any) -> str | None:
        """``h0``, ``d0``, ``u0``, ``v0`` …; None for a null pointer."""

    def take_events(self) -> list[list[Any]]:
        """The events since the last call, with names."""


class Engine:
    """Base of all engines: every part is unsupported until an engine offers it."""

    name = "engine"
    device = "cpu"
    Fatal: type[Any] = RuntimeError
    """What is raised where original Caffe ends the process: has ``message`` and ``file``."""

    def describe(self) -> dict[str, str]:
        """What runs: names and versions, for the report."""
        return {"engine": self.name, "device": self.device}

    def recording(self, case: Case, play: Callable[[Case, Engine], Recording]) -> Recording:
        """What the case gives on this engine."""
        return play(case, self)

    def stream(self, seed: int) -> Any:
        """A random stream, with the methods of ``refcaffe.rng.Stream``."""
        raise self._lacks("random streams")

    def nextafter(self, x: Any) -> Any:
        """``caffe_nextafter`` of a float32 or float64."""
        raise self._lacks("caffe_nextafter")

    def message(self, name: str, text: str) -> Any:
        """A protocol buffer message of the schema, parsed from its text form."""
        raise self._lacks("protocol buffers")

    @contextmanager
    def memories(self, upstream: str, mode: str, device: int) -> Iterator[Memories]:
        """A fresh world of memory, as the Caffe named by a key of provenance.json would have it."""
        raise self._lacks("memory events")
        yield

    @contextmanager
    def pycaffe(self, upstream: str, mode: str) -> Iterator[Pycaffe]:
        """pycaffe with nothing in it, as the Caffe named by a key of provenance.json would have it."""
        raise self._lacks("nets")
        yield

    @contextmanager
    def pipeline(self, upstream: str, mode: str) -> Iterator[Pipeline]:
        """The data pipeline, as the Caffe named by a key of provenance.json would have it."""
        raise self._lacks("data pipeline")
        yield

    def programs(self, upstream: str) -> Programs:
        """Caffe's programs as processes, as the Caffe named by a key of provenance.json would have them."""
        raise self._lacks("programs")

    @contextmanager
    def gpumode(self, upstream: str) -> Iterator[GpuWorld]:
        """GPU mode on device 0 of the Caffe named by a key of provenance.json, with every copy noted."""
        raise self._lacks("GPU mode")
        yield

    def not_yet(self, message: str) -> str | None:
        """What the engine does not have yet, if that is why it refused something with this message."""
        return None

    def _lacks(self, what: str) -> Unsupported:
        return Unsupported(f"engine {self.name} has no {what}")
