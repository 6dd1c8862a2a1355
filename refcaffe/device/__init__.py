"""Where bytes live: the host, a CUDA device, or a fake device in host memory that behaves like one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from refcaffe.checks import CheckError
from refcaffe.device.fake import FakeRuntime
from refcaffe.device.runtime import (
    NO_GPU,
    NO_GPU_HINT,
    OUT_OF_MEMORY,
    Generator,
    HostRuntime,
    Memory,
    Runtime,
    Stream,
)

__all__ = [
    "NO_GPU", "NO_GPU_HINT", "OUT_OF_MEMORY", "FakeRuntime", "Generator", "HostRuntime", "Memory", "Runtime", "Stream",
    "make", "runtime", "use",
]  # fmt: skip

_runtime: Runtime | None = None


def make(name: str) -> Runtime:
    """A runtime by name: ``cpu`` (no GPU, as a CPU_ONLY Caffe), ``fake`` or ``cuda`` (through CuPy).

    Raises CheckError for another name, and for ``cuda`` where CuPy or a GPU is missing.
    """
    if name == "cpu":
        return HostRuntime()
    if name == "fake":
        return FakeRuntime()
    if name == "cuda":
        from refcaffe.device.cuda import CudaRuntime  # imports CuPy

        return CudaRuntime()
    raise CheckError(f"unknown device {name!r}: one of cpu, fake, cuda")


def runtime() -> Runtime:
    """The process's runtime: the one last given to ``use``, else what ``REFCAFFE_DEVICE`` names, else the host."""
    global _runtime
    if _runtime is None:
        _runtime = make(os.environ.get("REFCAFFE_DEVICE", "cpu"))
    return _runtime


@contextmanager
def use(new: Runtime | str) -> Iterator[Runtime]:
    """Another runtime inside a ``with`` block, for the whole process. Memory stays with the runtime that made it."""
    global _runtime
    before = _runtime
    _runtime = make(new) if isinstance(new, str) else new
    try:
        yield _runtime
    finally:
        _runtime = before
