"""SyncedMemory: the same bytes on the host and on a device, and where the newest ones are.

Written from the head transitions and copies that original Caffe was recorded to make.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from refcaffe import context
from refcaffe.checks import Checker
from refcaffe.context import Mode
from refcaffe.device import Memory, runtime

_check = Checker("syncedmem.cpp")


class Head(Enum):
    """Where the newest bytes are."""

    UNINITIALIZED = 0
    HEAD_AT_CPU = 1
    HEAD_AT_GPU = 2
    SYNCED = 3


class SyncedMemory:
    """``size`` bytes that are allocated and zeroed on the side that first touches them, and copied when the other asks.

    Accessors return the side's Memory, or None for a null pointer. Raises CheckError with upstream's message.
    """

    __slots__ = (
        "__weakref__", "_born_on", "_cpu", "_gpu", "_gpu_device", "_pinned", "_runtime", "head", "own_cpu_data",
        "own_gpu_data", "size",
    )  # fmt: skip

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.head = Head.UNINITIALIZED
        self.own_cpu_data = False
        self.own_gpu_data = False
        self._cpu: Memory | None = None
        self._gpu: Memory | None = None
        self._pinned = False  # how host memory was allocated, hence how it is freed
        self._runtime = runtime()
        self._gpu_device = -1  # reader era: the device that owned memory was made on
        self._born_on = self._runtime.get_device() if self._checks_device else None

    @property
    def _checks_device(self) -> bool:
        return context.current_build().debug and self._runtime.has_gpu

    def _check_device(self) -> None:
        if self._born_on is not None:
            _check(self._runtime.get_device() == self._born_on, "device == device_")

    @property
    def sides(self) -> tuple[Memory | None, Memory | None]:
        """The memory of host and device as it is, None where there is none yet; no head moves."""
        return self._cpu, self._gpu

    # --- the host side

    def _alloc_host(self, clear: bool) -> Memory | None:
        pinned = self._runtime.has_gpu and context.current().mode is Mode.GPU
        memory = self._runtime.host_alloc(self.size, pinned, clear)
        self._pinned, self.own_cpu_data = pinned, True
        return memory

    def cpu_data(self) -> Memory | None:
        """The host side, up to date, for reading."""
        if self._born_on is not None:
            self._check_device()
        if self.head is Head.UNINITIALIZED:
            self._cpu = self._alloc_host(clear=True)
            self.head = Head.HEAD_AT_CPU
        elif self.head is Head.HEAD_AT_GPU:
            if self._cpu is None:
                self._cpu = self._alloc_host(clear=False)
            self._runtime.copy(self._cpu, self._gpu, self.size)
            self.head = Head.SYNCED
        return self._cpu

    def mutable_cpu_data(self) -> Memory | None:
        """The host side, up to date, for writing: the device side is stale from now on."""
        memory = self.cpu_data()
        self.head = Head.HEAD_AT_CPU
        return memory

    def set_cpu_data(self, memory: Memory | None) -> None:
        """Use the caller's host memory, which is never freed here."""
        self._check_device()
        _check(memory is not None, "data")
        self._free_host()
        self._cpu, self.own_cpu_data = memory, False
        self.head = Head.HEAD_AT_CPU

    def _free_host(self) -> None:
        if self.own_cpu_data and self._cpu is not None:
            self._runtime.host_free(self._cpu, self._pinned)

    # --- the device side

    def _alloc_device(self, clear: bool) -> Memory | None:
        if context.current_build().reader_era:
            self._gpu_device = self._runtime.get_device()
        memory = self._runtime.device_alloc(self.size, clear)
        self.own_gpu_data = True
        return memory

    def gpu_data(self) -> Memory | None:
        """The device side, up to date, for reading."""
        if self._born_on is not None:
            self._check_device()
        if not self._runtime.has_gpu:
            self._runtime.no_gpu()
        self._runtime.get_device()  # makes it current in this thread
        if self.head is Head.UNINITIALIZED:
            self._gpu = self._alloc_device(clear=True)
            self.head = Head.HEAD_AT_GPU
        elif self.head is Head.HEAD_AT_CPU:
            if self._gpu is None:
                self._gpu = self._alloc_device(clear=False)
            self._runtime.copy(self._gpu, self._cpu, self.size)
            self.head = Head.SYNCED
        return self._gpu

    def mutable_gpu_data(self) -> Memory | None:
        """The device side, up to date, for writing: the host side is stale from now on."""
        memory = self.gpu_data()
        self.head = Head.HEAD_AT_GPU
        return memory

    def set_gpu_data(self, memory: Memory | None) -> None:
        """Use the caller's device memory, which is never freed here."""
        self._check_device()
        if not self._runtime.has_gpu:
            self._runtime.no_gpu()
        _check(memory is not None, "data")
        self._free_device()
        self._gpu, self.own_gpu_data = memory, False
        self.head = Head.HEAD_AT_GPU

    def async_gpu_push(self, stream: Any) -> None:
        """Start a copy to the device; the caller synchronizes ``stream`` before anybody reads there."""
        self._check_device()
        _check(self.head is Head.HEAD_AT_CPU, "head_ == HEAD_AT_CPU")
        if self._gpu is None:
            self._gpu = self._alloc_device(clear=False)
        self._runtime.copy_async(self._gpu, self._cpu, self.size, stream)
        self.head = Head.SYNCED

    def _free_device(self) -> None:
        if not self.own_gpu_data:
            return
        reader_era = self._gpu_device >= 0  # when it was made
        if reader_era:
            here = self._runtime.get_device()
            self._runtime.set_device(self._gpu_device)
        if self._gpu is not None:
            self._runtime.device_free(self._gpu)
        if reader_era:
            self._runtime.set_device(here)

    # --- the end

    def close(self) -> None:
        """The destructor: frees what is owned, host side first. Harmless the second time."""
        self._check_device()
        self._free_host()
        if self._gpu is not None:
            self._free_device()
        self._cpu = self._gpu = None
        self.own_cpu_data = self.own_gpu_data = False

    def __del__(self) -> None:
        self.close()
