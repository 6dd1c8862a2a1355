"""The protocol of a runtime, which is to refcaffe what the CUDA runtime is to Caffe, and the one without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, Protocol

import numpy as np

from refcaffe import context
from refcaffe.checks import CheckError
from refcaffe.device.room import host_block, require

NO_GPU = "Cannot use GPU in CPU-only Caffe: check mode."
NO_GPU_HINT = "no GPU here: install refcaffe[gpu] and set REFCAFFE_DEVICE=cuda, or REFCAFFE_DEVICE=fake to try without"

OUT_OF_MEMORY = "Check failed: error == cudaSuccess (2 vs. 0)  out of memory"
INVALID_DEVICE = "Check failed: error == cudaSuccess (10 vs. 0)  invalid device ordinal"

Event = tuple[Any, ...]


class Memory:
    """A block of bytes on one side. ``array``: flat uint8, of NumPy or of the device's array module.

    Two Memory objects may be (parts of) the same block: ``address`` tells.
    """

    __slots__ = ("array", "on_device")

    def __init__(self, array: Any, on_device: bool = False) -> None:
        self.array = array
        self.on_device = on_device

    @classmethod
    def of(cls, array: Any, on_device: bool = False) -> Memory:
        """The memory of somebody else's C-contiguous array; nothing is copied."""
        if not array.flags.c_contiguous:
            raise ValueError("an array in pieces is no block of memory")
        return cls(array.reshape(-1).view(np.uint8), on_device)

    @property
    def nbytes(self) -> int:
        return int(self.array.size)

    @property
    def address(self) -> int:
        """Where the block begins, in the address space of its side."""
        data = self.array.data
        return int(data.ptr) if hasattr(data, "ptr") else int(self.array.ctypes.data)


class Stream(Protocol):
    """An order of asynchronous work on a device."""

    def synchronize(self) -> None: ...


class Generator(Protocol):
    """A random generator of a device; it writes flat arrays of the device."""

    def seed(self, seed: int) -> None:
        """Start anew, from the beginning of a seed's numbers."""

    def words(self, out: Any) -> None:
        """32 random bits for each element (uint32)."""

    def uniform(self, out: Any) -> None:
        """Numbers above 0 up to 1 (float32 or float64)."""


class Runtime:
    """Allocations and copies. ``record``, if set, is called with every event, in order:

    ``("h_alloc", how, bytes, memory)``, ``("h_free", how, memory)``, ``("d_alloc", bytes, device, memory)``,
    ``("d_free", memory, device)``, ``("h_memset" | "d_memset", memory, value, bytes)``,
    ``("memcpy", direction, bytes, to, from)``, ``("memcpy_async", direction, bytes, to, from, stream)``,
    ``("set_device", k)``, ``("axpy" | "scal" | "asum" | "dot", side, n)``, and the failed forms of allocation.
    ``how`` is ``malloc`` or ``pinned``; ``memory`` is None for a null pointer. ``make_generator`` makes the random
    generators of a device; another one may be put in its place.
    """

    name = "host"
    has_gpu = False
    xp: Any = np  # the array module of device memory

    def __init__(self) -> None:
        self.record: Callable[[Event], None] | None = None
        self.make_generator: Callable[[], Generator] = self.no_gpu  # for the current device

    def event(self, *event: Any) -> None:
        if self.record is not None:
            self.record(event)

    # --- the host

    def host_alloc(self, nbytes: int, pinned: bool, clear: bool) -> Memory | None:
        """New host memory, of zeros if ``clear``. ``pinned`` needs a GPU; 0 pinned bytes are a null pointer."""
        raise NotImplementedError

    def host_free(self, memory: Memory, pinned: bool) -> None:
        """Give host memory up. Arrays that still look at it stay valid."""
        self.event("h_free", "pinned" if pinned else "malloc", memory)

    def host_copy(self, to: Memory, source: Memory, nbytes: int) -> None:
        """memcpy."""
        to.array[:nbytes] = source.array[:nbytes]
        self.event("memcpy", "H2H", nbytes, to, source)

    # --- devices

    def device_count(self) -> int:
        return 0

    def get_device(self) -> int:
        """The thread's current device; work that follows is done there."""
        self.no_gpu()

    def set_device(self, device: int) -> None:
        self.no_gpu()

    def device_alloc(self, nbytes: int, clear: bool) -> Memory | None:
        """New memory on the current device; 0 bytes are a null pointer. CheckError if there is not enough."""
        self.no_gpu()

    def device_free(self, memory: Memory) -> None:
        self.no_gpu()

    def copy(self, to: Memory | None, source: Memory | None, nbytes: int) -> None:
        """cudaMemcpy, the direction given by where the two lie. Null pointers: nothing is copied.
        A copy of a memory to itself is no call at all.
        """
        self.no_gpu()

    def copy_async(self, to: Memory | None, source: Memory | None, nbytes: int, stream: Any) -> None:
        self.no_gpu()

    def new_stream(self) -> Any:
        self.no_gpu()

    def generator(self) -> Generator:
        """The calling thread's generator; it begins with the seed that the thread was given last."""
        here = context.current()
        if here.generator is None or here.generator[0] is not self:
            made = self.make_generator()
            made.seed(context.entropy() if here.generator_seed is None else here.generator_seed)
            here.generator = (self, made)
        return here.generator[1]

    def properties(self, device: int) -> dict[str, Any]:
        """What a device is, by the names of CUDA's ``cudaDeviceProp``."""
        self.no_gpu()

    def no_gpu(self) -> NoReturn:
        raise CheckError(NO_GPU, "syncedmem.cpp").within(NO_GPU_HINT)


class HostRuntime(Runtime):
    """The host alone, as a Caffe compiled with CPU_ONLY."""

    def host_alloc(self, nbytes: int, pinned: bool, clear: bool) -> Memory | None:
        try:
            require(nbytes)
            memory = Memory(host_block(nbytes, clear))
        except MemoryError:
            raise CheckError(f"Check failed: *ptr host allocation of size {nbytes} failed", "syncedmem.hpp") from None
        self.event("h_alloc", "malloc", nbytes, memory)
        if clear:
            self.event("h_memset", memory, 0, nbytes)
        return memory
