"""A device in host memory that behaves like a GPU: separate allocations, explicit copies, garbage in new memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe import context
from refcaffe.checks import CheckError
from refcaffe.device.room import fits
from refcaffe.device.runtime import INVALID_DEVICE, OUT_OF_MEMORY, Memory, Runtime
from refcaffe.device.xorwow import Xorwow

GARBAGE = 0xA5  # what new memory holds, so that a missing zero-fill shows

# As a card of the years when Caffe was written, so that nothing is promised that a real one might lack.
FAKE_PROPERTIES: dict[str, Any] = {
    "name": "refcaffe fake device in host memory",
    "major": 5,
    "minor": 2,
    "totalGlobalMem": 12 * 2**30,
    "sharedMemPerBlock": 48 * 2**10,
    "regsPerBlock": 64 * 2**10,
    "warpSize": 32,
    "memPitch": 2**31 - 1,
    "maxThreadsPerBlock": 1024,
    "maxThreadsDim": (1024, 1024, 64),
    "maxGridSize": (2**31 - 1, 65535, 65535),
    "clockRate": 1000000,
    "totalConstMem": 64 * 2**10,
    "textureAlignment": 512,
    "deviceOverlap": 1,
    "multiProcessorCount": 24,
    "kernelExecTimeoutEnabled": 0,
}


class FakeStream:
    """A stream whose work is done by the time it is asked for, as the recordings' was."""

    def synchronize(self) -> None:
        pass


class FakeGenerator:
    """Gives the numbers of cuRAND's default generator."""

    def seed(self, seed: int) -> None:
        self._numbers = Xorwow(seed)

    def words(self, out: Any) -> None:
        out[...] = self._numbers.words(out.size)

    def uniform(self, out: Any) -> None:
        out[...] = self._numbers.uniform(out.size, out.dtype)


class FakeRuntime(Runtime):
    """``devices`` fake GPUs with ``bytes_each`` bytes of memory (None: no limit)."""

    name = "fake"
    has_gpu = True

    def __init__(self, devices: int = 4, bytes_each: int | None = None) -> None:
        super().__init__()
        self.make_generator = FakeGenerator
        self.devices = devices
        self.bytes_each = bytes_each
        self.in_use = [0] * devices
        self._owner: dict[int, int] = {}  # id of a live device memory -> its device
        self._failing: set[str] = set()

    def fail_next(self, function: str) -> None:
        """Let the next call of ``malloc``, ``cudaMallocHost`` or ``cudaMalloc`` fail."""
        self._failing.add(function)

    def _fails(self, function: str) -> bool:
        if function not in self._failing:
            return False
        self._failing.remove(function)
        return True

    def host_alloc(self, nbytes: int, pinned: bool, clear: bool) -> Memory | None:
        how = "pinned" if pinned else "malloc"
        if self._fails("cudaMallocHost" if pinned else "malloc") or not fits(nbytes):
            self.event("h_alloc_failed", how, nbytes)
            message = OUT_OF_MEMORY if pinned else f"Check failed: *ptr host allocation of size {nbytes} failed"
            raise CheckError(message, "syncedmem.hpp")
        memory = None if pinned and nbytes == 0 else Memory(np.full(nbytes, 0 if clear else GARBAGE, np.uint8))
        self.event("h_alloc", how, nbytes, memory)
        if clear and memory is not None:
            self.event("h_memset", memory, 0, nbytes)
        return memory

    def device_count(self) -> int:
        return self.devices

    def get_device(self) -> int:
        return context.current().device

    def set_device(self, device: int) -> None:
        if not 0 <= device < self.devices:
            raise CheckError(INVALID_DEVICE, "common.cpp").within(f"device {device} of {self.devices}")
        here = context.current()
        if here.device != device:
            here.device = device
            here.lose_generator()
        self.event("set_device", device)

    def device_alloc(self, nbytes: int, clear: bool) -> Memory | None:
        device = self.get_device()
        full = self.bytes_each is not None and self.in_use[device] + nbytes > self.bytes_each
        if full or self._fails("cudaMalloc") or not fits(nbytes):
            self.event("d_alloc_failed", nbytes, device)
            raise CheckError(OUT_OF_MEMORY, "syncedmem.cpp").within(f"{nbytes} bytes on device {device}")
        memory = None
        if nbytes:
            memory = Memory(np.full(nbytes, 0 if clear else GARBAGE, np.uint8), on_device=True)
            self.in_use[device] += nbytes
            self._owner[id(memory)] = device
        self.event("d_alloc", nbytes, device, memory)
        if clear:
            self.event("d_memset", memory, 0, nbytes)
        return memory

    def device_free(self, memory: Memory) -> None:
        self.in_use[self._owner.pop(id(memory))] -= memory.nbytes
        self.event("d_free", memory, self.get_device())

    def copy(self, to: Memory | None, source: Memory | None, nbytes: int) -> None:
        if to is not source:
            self.event("memcpy", self._move(to, source, nbytes), nbytes, to, source)

    def copy_async(self, to: Memory | None, source: Memory | None, nbytes: int, stream: Any) -> None:
        self.event("memcpy_async", self._move(to, source, nbytes), nbytes, to, source, stream)

    @staticmethod
    def _move(to: Memory | None, source: Memory | None, nbytes: int) -> str:
        if to is None or source is None:
            return "none"
        to.array[:nbytes] = source.array[:nbytes]
        return f"{'HD'[source.on_device]}2{'HD'[to.on_device]}"

    def new_stream(self) -> FakeStream:
        return FakeStream()

    def properties(self, device: int) -> dict[str, Any]:
        return {**FAKE_PROPERTIES, "totalGlobalMem": self.bytes_each or FAKE_PROPERTIES["totalGlobalMem"]}
