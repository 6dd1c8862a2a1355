"""A device as strict as CUDA through CuPy, on a machine without one.

Its arrays are no NumPy arrays: nothing converts them silently, NumPy's functions refuse them, and so do its own those
of the host. Its kernels are the CUDA C sources themselves, compiled as C++ with threads in a loop. What runs here mixes
no sides and calls nothing that CuPy does not have.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from refcaffe.device.fake import FakeGenerator, FakeRuntime
from refcaffe.device.runtime import Memory
from refcaffe.kernels.cuda import TYPES, CudaKernels

COMPILER = shutil.which("g++") or shutil.which("c++")

# What refcaffe calls of CuPy; test_strict.py checks that CuPy 13 has it, where CuPy is installed.
CUPY_NAMES = frozenset(
    {
        "abs",
        "absolute",
        "add",
        "any",
        "arange",
        "argmax",
        "argsort",
        "asarray",
        "bincount",
        "copyto",
        "cumsum",
        "divide",
        "einsum",
        "empty",
        "empty_like",
        "exp",
        "fmax",
        "greater",
        "isnan",
        "log",
        "logical_not",
        "matmul",
        "max",
        "maximum",
        "minimum",
        "multiply",
        "negative",
        "nonzero",
        "ones",
        "power",
        "sign",
        "sqrt",
        "subtract",
        "sum",
        "take",
        "take_along_axis",
        "tanh",
        "where",
    }
)
_BRINGS = ("asarray", "array")  # what takes arrays of the host


def _inside(value: Any) -> Any:
    """NumPy's array of a device array, for a call; the host's arrays are refused."""
    if isinstance(value, DeviceArray):
        return value.array
    if isinstance(value, np.ndarray):
        raise TypeError("an array of the host among those of the device")
    if isinstance(value, tuple | list):
        return type(value)(map(_inside, value))
    return value


def _outside(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return DeviceArray(np.asarray(value))
    return tuple(map(_outside, value)) if isinstance(value, tuple) else value


class DeviceArray:
    """An array of the device. ``array`` is for this module only."""

    __array_ufunc__: ClassVar[None] = None  # NumPy's operators hand over to ours
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("Implicit conversion to a NumPy array is not allowed")

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__array_interface__

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.array.ctypes.data)

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self.array.copy()
        out[...] = self.array
        return out

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # else NumPy would find its way in
            raise AttributeError(name)
        found = getattr(self.array, name)
        if callable(found):
            return lambda *args, **kwargs: _outside(found(*map(_inside, args), **_inside_all(kwargs)))
        return DeviceArray(found) if isinstance(found, np.ndarray) else found

    def __getitem__(self, index: Any) -> DeviceArray:
        return DeviceArray(np.asarray(self.array[_inside(index)]))

    def __setitem__(self, index: Any, value: Any) -> None:
        self.array[_inside(index)] = _inside(value)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self.array)))

    def __len__(self) -> int:
        return len(self.array)

    def __bool__(self) -> bool:
        return bool(self.array)

    def __float__(self) -> float:
        return float(self.array)

    def __int__(self) -> int:
        return int(self.array)


def _inside_all(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {key: _inside(value) for key, value in kwargs.items()}


def _operator(name: str) -> Any:
    def operate(self: DeviceArray, *others: Any) -> Any:
        return _outside(getattr(self.array, name)(*map(_inside, others)))

    return operate


def _in_place(name: str) -> Any:
    def operate(self: DeviceArray, other: Any) -> DeviceArray:
        getattr(self.array, name)(_inside(other))
        return self

    return operate


for _name in ("add", "sub", "mul", "truediv", "pow", "floordiv", "mod", "matmul", "and", "or", "xor"):
    setattr(DeviceArray, f"__{_name}__", _operator(f"__{_name}__"))
    setattr(DeviceArray, f"__r{_name}__", _operator(f"__r{_name}__"))
    setattr(DeviceArray, f"__i{_name}__", _in_place(f"__i{_name}__"))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "abs", "invert"):
    setattr(DeviceArray, f"__{_name}__", _operator(f"__{_name}__"))


class StrictModule:
    """The array module."""

    def __getattr__(self, name: str) -> Any:
        if name not in CUPY_NAMES:
            raise AttributeError(f"{name}: not among the functions of CuPy that refcaffe uses")
        function = getattr(np, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            given = [arg.array if isinstance(arg, DeviceArray) else arg for arg in args] if name in _BRINGS else args
            found = function(*(given if name in _BRINGS else map(_inside, given)), **_inside_all(kwargs))
            return kwargs["out"] if kwargs.get("out") is not None else _outside(found)

        return call


class _Generator(FakeGenerator):
    def words(self, out: Any) -> None:
        super().words(out.array)

    def uniform(self, out: Any) -> None:
        super().uniform(out.array)


class StrictRuntime(FakeRuntime):
    """The fake device with strict arrays."""

    xp = StrictModule()

    def __init__(self) -> None:
        super().__init__()
        self.make_generator = _Generator

    def device_alloc(self, nbytes: int, clear: bool) -> Memory | None:
        memory = super().device_alloc(nbytes, clear)
        if memory is not None:
            memory.array = DeviceArray(memory.array)
        return memory

    @staticmethod
    def _move(to: Memory | None, source: Memory | None, nbytes: int) -> str:
        if to is None or source is None:
            return "none"
        ends = [end.array.array if end.on_device else end.array for end in (to, source)]
        assert all(isinstance(end, np.ndarray) for end in ends)
        ends[0][:nbytes] = ends[1][:nbytes]
        return f"{'HD'[source.on_device]}2{'HD'[to.on_device]}"


# --- kernels

_PRELUDE = """
#include <algorithm>
using std::max;
using std::min;
#define KERNEL extern "C" void
#define DEVICE static inline
#define LOOP(i, n) for (long long i = 0; i < (n); ++i)
template <typename X> static void atomicAdd(X* at, X value) { *at += value; }
"""


class _Module:
    """A compiled source, with the interface of CuPy's RawModule."""

    def __init__(self, path: Path) -> None:
        self._library = ctypes.CDLL(str(path))

    def get_function(self, name: str) -> Any:
        function = getattr(self._library, name)
        function.restype = None

        def launch(grid: Any, block: Any, arguments: tuple[Any, ...]) -> None:
            function(*map(_c_value, arguments))

        return launch


def _c_value(value: Any) -> Any:
    if isinstance(value, DeviceArray):
        assert value.array.flags.c_contiguous
        return ctypes.c_void_p(value.array.ctypes.data)
    return {
        np.dtype(np.int64): ctypes.c_longlong,
        np.dtype(np.int32): ctypes.c_int,
        np.dtype(np.float32): ctypes.c_float,
        np.dtype(np.float64): ctypes.c_double,
    }[np.asarray(value).dtype](value.item())


def compile_for_host(kernels: CudaKernels, dtype: np.dtype[Any]) -> _Module:
    """In the place of ``CudaKernels.compile``."""
    folder = Path(tempfile.mkdtemp(prefix="kernels-"))
    source = folder / "kernels.cpp"
    source.write_text(f"{_PRELUDE}typedef {TYPES[dtype]} T;\n{kernels.source}", encoding="utf-8")
    options = ["-O1", "-std=c++14", "-ffp-contract=off", "-shared", "-fPIC", "-Wno-unused-function"]
    subprocess.run([str(COMPILER), *options, "-o", str(folder / "kernels.so"), str(source)], check=True)
    module = _Module(folder / "kernels.so")
    shutil.rmtree(folder)  # it stays mapped
    return module
