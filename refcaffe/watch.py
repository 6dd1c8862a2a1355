"""Watching what moves: where the newest bytes of blobs are, and which copies a runtime makes, by the names of blobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.context import Mode
from refcaffe.device import Memory, Runtime
from refcaffe.device.runtime import Event
from refcaffe.syncedmem import Head, SyncedMemory

INTERNAL = "internal"

_LETTERS = {
    Head.UNINITIALIZED: "U",
    Head.HEAD_AT_CPU: "C",
    Head.HEAD_AT_GPU: "G",
    Head.SYNCED: "S",
}


_HEAD = SyncedMemory.__dict__["head"]  # where the attribute really is


class _WatchedHead:
    """Stands in for the attribute ``head`` while somebody watches it."""

    def __init__(self, turned: Callable[[SyncedMemory, Head, Head], None]) -> None:
        self._turned = turned

    def __get__(self, memory: SyncedMemory, kind: type) -> Head:
        return _HEAD.__get__(memory, kind)

    def __set__(self, memory: SyncedMemory, head: Head) -> None:
        before = getattr(memory, "head", head)  # none yet while the memory is made
        _HEAD.__set__(memory, head)
        self._turned(memory, before, head)


def heads(blob: Blob) -> str:
    """Two letters, for data and diff: U uninitialized, C at the CPU, G at the GPU, S synced, - no memory yet."""
    return "".join("-" if memory is None else _LETTERS[memory.head] for memory in blob.memories[:2])


@dataclass(frozen=True)
class Copy:
    """A copy: H2D, D2H, D2D or H2H; ``source`` and ``to`` are blobs (``name.data``, ``name.diff``) or internal memory.

    ``prefetch``: it was made by another thread than the watching one.
    """

    direction: str
    nbytes: int
    source: str
    to: str
    asynchronous: bool
    prefetch: bool

    @property
    def ends(self) -> list[str]:
        """Source and target; one of them where a blob's memory was brought to its other side."""
        same = self.source == self.to and self.direction in ("H2D", "D2H")
        return [self.source] if same else [self.source, self.to]


@dataclass(frozen=True)
class Turn:
    """A head that moved: ``what`` is ``name.data`` or ``name.diff``."""

    what: str
    before: str
    after: str


class Watch:
    """The copies of a runtime, as long as the ``with`` block lasts, and with ``turns`` every move of a named head.

    Nobody else may record the runtime's events meanwhile.
    """

    def __init__(self, runtime: Runtime, turns: bool = False) -> None:
        self._runtime = runtime
        self._turns = turns
        self._thread = threading.get_ident()
        self._events: list[tuple[bool, Event, list[str]] | Turn] = []
        self._named: Mapping[str, Blob] = {}

    def __enter__(self) -> Watch:
        self._runtime.record = self._record
        if self._turns:
            setattr(SyncedMemory, "head", _WatchedHead(self._turned))  # noqa: B010 -- a slot, to type checkers
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._runtime.record = None
        if self._turns:
            setattr(SyncedMemory, "head", _HEAD)  # noqa: B010

    def name(self, blobs: Mapping[str, Blob]) -> None:
        """From now on these are the blobs that have names; of several that share memory the first gives its own."""
        self._named = blobs

    def _record(self, event: Event) -> None:
        if event[0] not in ("memcpy", "memcpy_async"):
            return
        if event[1] == "H2H" and context.current().mode is Mode.CPU:  # a memcpy of C, no call of the runtime
            return
        here = threading.get_ident() == self._thread
        _, _, _, to, source = event[:5]
        self._events.append((here, event, [self._find(source), self._find(to)] if here else [INTERNAL] * 2))

    def _turned(self, memory: SyncedMemory, before: Head, after: Head) -> None:
        if before is after or threading.get_ident() != self._thread:
            return
        for name, blob in self._named.items():
            for which, held in zip(("data", "diff"), blob.memories, strict=False):
                if held is memory:
                    self._events.append(Turn(f"{name}.{which}", _LETTERS[before], _LETTERS[after]))
                    return

    def _find(self, end: Memory | None) -> str:
        address = -1 if end is None else end.address
        for name, blob in self._named.items():
            for which, memory in zip(("data", "diff"), blob.memories, strict=False):
                for side in () if memory is None else memory.sides:
                    if side is not None and side.address <= address < side.address + max(side.nbytes, 1):
                        return f"{name}.{which}"
        return INTERNAL

    def take_copies(self) -> list[Copy]:
        """The copies since the last call."""
        return [entry for entry in self.take() if isinstance(entry, Copy)]

    def take(self) -> list[Copy | Turn]:
        """What happened since the last call, in order."""
        events, self._events = self._events, []
        found: list[Copy | Turn] = []
        for entry in events:
            if isinstance(entry, Turn):
                found.append(entry)
                continue
            here, event, names = entry
            call, direction, nbytes, to, source = event[:5]
            if here:  # what had no name when it was copied may have one now: that of a blob just made
                ends = zip(names, (source, to), strict=True)
                names = [self._find(end) if name == INTERNAL else name for name, end in ends]
            origin, target = names
            found.append(Copy(direction, nbytes, origin, target, call == "memcpy_async", not here))
        return found
