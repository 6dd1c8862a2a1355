"""A fresh world of memory on refcaffe, with names for every block and a record of every event."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from conformance.outcome import Unsupported
from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.context import Mode
from refcaffe.device import FakeRuntime, Memory, Runtime
from refcaffe.syncedmem import SyncedMemory


class RefcaffeMemories:
    """``conformance.engines.base.Memories`` on one runtime of refcaffe."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._names: dict[int, str] = {}
        self._named: list[Memory] = []  # kept alive, so that no id is used twice
        self._count: Counter[str] = Counter()
        self._events: list[list[Any]] = []
        self.stream = runtime.new_stream() if runtime.has_gpu else None
        runtime.record = self._record

    def set_mode(self, mode: str) -> None:
        context.current().mode = Mode[mode]

    def set_device(self, device: int) -> None:
        if self._runtime.has_gpu and device >= self._runtime.device_count():
            raise Unsupported(f"there is no device {device} here")
        context.current().device = device

    def fail_next(self, function: str) -> None:
        if not isinstance(self._runtime, FakeRuntime):
            raise Unsupported(f"a failing {function} cannot be provoked on device {self._runtime.name}")
        self._runtime.fail_next(function)

    def syncedmem(self, size: int | None) -> SyncedMemory:
        return SyncedMemory() if size is None else SyncedMemory(size)

    def blob(self, shape: list[int] | None, dtype: np.dtype) -> Blob:
        return Blob(shape, dtype)

    def caller_host(self, array: np.ndarray) -> Memory:
        return self._christen("u", Memory.of(array.copy()))

    def caller_device(self, array: np.ndarray) -> Memory:
        return self._christen("v", Memory.of(self._runtime.xp.array(array), on_device=True))

    def sides(self, memory: SyncedMemory) -> tuple[Memory | None, Memory | None]:
        return memory._cpu, memory._gpu

    def read(self, block: Memory) -> np.ndarray:
        return block.array.get() if hasattr(block.array, "get") else block.array.copy()

    def write(self, block: Memory, data: np.ndarray) -> None:
        block.array[: data.nbytes] = self._runtime.xp.asarray(data).view(np.uint8)

    def name(self, block: Memory | None) -> str | None:
        return None if block is None else self._names[id(block)]

    def take_events(self) -> list[list[Any]]:
        events, self._events = self._events, []
        return events

    def _christen(self, letter: str, block: Memory) -> Memory:
        self._names[id(block)] = f"{letter}{self._count[letter]}"
        self._count[letter] += 1
        self._named.append(block)
        return block

    def _record(self, event: tuple[Any, ...]) -> None:
        if event[0] in ("h_alloc", "d_alloc") and event[-1] is not None:
            self._christen(event[0][0], event[-1])
        shown = [self.name(part) if isinstance(part, Memory) else part for part in event]
        if event[0] == "memcpy_async":
            shown[-1] = "stream"
        self._events.append(shown)
