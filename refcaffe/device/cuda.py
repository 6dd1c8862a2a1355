"""CUDA devices, through CuPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from refcaffe import context
from refcaffe.checks import CheckError
from refcaffe.device.room import host_block, require
from refcaffe.device.runtime import INVALID_DEVICE, OUT_OF_MEMORY, Memory, Runtime

try:
    import cupy
except ImportError as error:
    raise CheckError("CuPy is not installed: pip install 'refcaffe[gpu]'") from error


class CudaRuntime(Runtime):
    """The machine's CUDA devices. Needs at least one; raises CheckError otherwise."""

    name = "cuda"
    has_gpu = True
    xp = cupy

    def __init__(self) -> None:
        super().__init__()
        try:
            self._count = cupy.cuda.runtime.getDeviceCount()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise CheckError(f"CUDA cannot be used here: {error}") from error
        self._applied = threading.local()
        self.make_generator = self._make_generator

    def host_alloc(self, nbytes: int, pinned: bool, clear: bool) -> Memory | None:
        how = "pinned" if pinned else "malloc"
        try:
            require(nbytes)
            if pinned:
                block = cupy.cuda.alloc_pinned_memory(nbytes) if nbytes else None
                memory = None if block is None else Memory(np.frombuffer(block, np.uint8, nbytes))
                if clear and memory is not None:
                    memory.array[:] = 0
            else:
                memory = Memory(host_block(nbytes, clear))
        except (MemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
            self.event("h_alloc_failed", how, nbytes)
            message = OUT_OF_MEMORY if pinned else f"Check failed: *ptr host allocation of size {nbytes} failed"
            raise CheckError(message, "syncedmem.hpp") from error
        self.event("h_alloc", how, nbytes, memory)
        if clear and memory is not None:
            self.event("h_memset", memory, 0, nbytes)
        return memory

    def device_count(self) -> int:
        return int(self._count)

    def get_device(self) -> int:
        """The thread's device; makes it CUDA's current one if this thread has not done so yet."""
        device = context.current().device
        if getattr(self._applied, "device", None) != device:
            cupy.cuda.Device(device).use()
            self._applied.device = device
        return device

    def set_device(self, device: int) -> None:
        if not 0 <= device < self._count:
            raise CheckError(INVALID_DEVICE, "common.cpp").within(f"device {device} of {self._count}")
        here = context.current()
        if here.device != device:
            here.device = device
            here.lose_generator()
        self.get_device()
        self.event("set_device", device)

    def device_alloc(self, nbytes: int, clear: bool) -> Memory | None:
        device = self.get_device()
        try:
            memory = Memory(cupy.empty(nbytes, cupy.uint8), on_device=True) if nbytes else None
        except cupy.cuda.memory.OutOfMemoryError as error:
            self.event("d_alloc_failed", nbytes, device)
            raise CheckError(OUT_OF_MEMORY, "syncedmem.cpp").within(f"{nbytes} bytes on device {device}") from error
        self.event("d_alloc", nbytes, device, memory)
        if clear:
            if memory is not None:
                memory.array.fill(0)
            self.event("d_memset", memory, 0, nbytes)
        return memory

    def device_free(self, memory: Memory) -> None:
        # CuPy's pool takes the block back when the last array that looks at it goes.
        self.event("d_free", memory, self.get_device())

    def copy(self, to: Memory | None, source: Memory | None, nbytes: int) -> None:
        if to is not source:
            self.event("memcpy", self._move(to, source, nbytes, None), nbytes, to, source)

    def copy_async(self, to: Memory | None, source: Memory | None, nbytes: int, stream: Any) -> None:
        self.event("memcpy_async", self._move(to, source, nbytes, stream), nbytes, to, source, stream)

    def _move(self, to: Memory | None, source: Memory | None, nbytes: int, stream: Any) -> str:
        self.get_device()
        if to is None or source is None:
            return "none"
        target, data = to.array[:nbytes], source.array[:nbytes]
        if to.on_device and source.on_device:
            target[...] = data
        elif to.on_device:
            target.set(data, stream=stream)
        elif source.on_device:
            data.get(out=target, stream=stream)
            if stream is None:
                cupy.cuda.get_current_stream().synchronize()
        else:
            target[:] = data
        return f"{'HD'[source.on_device]}2{'HD'[to.on_device]}"

    def new_stream(self) -> Any:
        self.get_device()
        return cupy.cuda.Stream(non_blocking=True)

    def _make_generator(self) -> CudaGenerator:
        self.get_device()
        return CudaGenerator()

    def properties(self, device: int) -> dict[str, Any]:
        found = cupy.cuda.runtime.getDeviceProperties(device)
        return {**found, "name": found["name"].decode()}


class CudaGenerator:
    """cuRAND's default generator (XORWOW) on the device that is current now.

    Its numbers are laid out as cuRAND did before CUDA 11, when Caffe was used: later ones have another default.
    """

    _LEGACY_ORDER = 103  # CURAND_ORDERING_PSEUDO_LEGACY

    def __init__(self) -> None:
        from cupy.cuda import curand  # its library is an optional part of CuPy

        self._curand = curand
        self._handle = curand.createGenerator(curand.CURAND_RNG_PSEUDO_DEFAULT)
        curand.setGeneratorOrdering(self._handle, self._LEGACY_ORDER)

    def seed(self, seed: int) -> None:
        self._curand.setPseudoRandomGeneratorSeed(self._handle, seed)
        self._curand.setGeneratorOffset(self._handle, 0)

    def words(self, out: Any) -> None:
        self._on_stream()
        self._curand.generate(self._handle, out.data.ptr, out.size)

    def uniform(self, out: Any) -> None:
        self._on_stream()
        single = out.dtype == np.float32
        generate = self._curand.generateUniform if single else self._curand.generateUniformDouble
        generate(self._handle, out.data.ptr, out.size)

    def _on_stream(self) -> None:
        self._curand.setStream(self._handle, cupy.cuda.get_current_stream().ptr)

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._curand.destroyGenerator(self._handle)
