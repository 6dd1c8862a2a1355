"""Kernels in CUDA C, which CuPy compiles when they are first launched."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

# No fused multiply-add: every operation is rounded as it is written, as in the recordings.
OPTIONS = ("--std=c++14", "--fmad=false")
THREADS = 256

PRELUDE = """
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ inline
#define LOOP(i, n) \\
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < (n); i += (long long)blockDim.x * gridDim.x)
"""

TYPES = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


def on_cuda(array: Any) -> bool:
    """Whether an array lies on a CUDA device; those of the host and of the fake device are NumPy's."""
    return hasattr(array, "__cuda_array_interface__")


class CudaKernels:
    """The kernels of one source, in which ``T`` is the floating type.

    Each begins with ``KERNEL name(...)``, and ``LOOP(i, n)`` goes over its elements; functions they call begin with
    ``DEVICE``.
    """

    every: ClassVar[list[CudaKernels]] = []

    def __init__(self, source: str) -> None:
        self.source = source
        self._modules: dict[np.dtype[Any], Any] = {}
        CudaKernels.every.append(self)

    def code(self, dtype: np.dtype[Any]) -> str:
        """The program for one type."""
        return f"{PRELUDE}typedef {TYPES[dtype]} T;\n{self.source}"

    def compile(self, dtype: np.dtype[Any]) -> Any:
        """A module with ``get_function(name)``."""
        import cupy

        return cupy.RawModule(code=self.code(dtype), options=OPTIONS)

    def launch(self, name: str, count: int, dtype: np.dtype[Any], *arguments: Any) -> None:
        """Run a kernel over ``count`` elements. Arguments are arrays, Python's ints (C's int) and scalars of ``T``."""
        if count == 0:
            return
        if dtype not in self._modules:
            self._modules[dtype] = self.compile(dtype)
        plain = tuple(np.int32(value) if isinstance(value, int) else value for value in arguments)
        blocks = min((count + THREADS - 1) // THREADS, 2**16 - 1)
        self._modules[dtype].get_function(name)((blocks,), (THREADS,), (np.int64(count), *plain))
