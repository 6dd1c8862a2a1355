"""cuRAND itself, where it is installed: its generator for the host, which needs no GPU and gives the same numbers."""

from __future__ import annotations

import ctypes
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

_DEFAULT, _LEGACY_ORDER = 100, 103


def library() -> ctypes.CDLL | None:
    """The library of NVIDIA's wheel ``nvidia-curand-cu12``, or one that the system knows."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [str(path) for place in places for path in place.glob("curand/lib/libcurand.so*")]
    for name in [*found, "libcurand.so.10", "libcurand.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class Curand:
    """A generator with a seed, offset 0 and the order of Caffe's time."""

    def __init__(self, curand: ctypes.CDLL, seed: int) -> None:
        self._curand = curand
        self._handle = ctypes.c_void_p()
        self._call("CreateGeneratorHost", ctypes.byref(self._handle), _DEFAULT)
        self._call("SetGeneratorOrdering", self._handle, _LEGACY_ORDER)
        self._call("SetPseudoRandomGeneratorSeed", self._handle, ctypes.c_ulonglong(seed))
        self._call("SetGeneratorOffset", self._handle, ctypes.c_ulonglong(0))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._curand, f"curand{name}")(*arguments)
        assert status == 0, f"curand{name}: {status}"

    def _numbers(self, name: str, count: int, dtype: Any) -> np.ndarray:
        out = np.zeros(count, dtype)
        self._call(name, self._handle, out.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(count))
        return out

    def words(self, count: int) -> np.ndarray:
        return self._numbers("Generate", count, np.uint32)

    def uniform(self, count: int, dtype: Any) -> np.ndarray:
        name = "GenerateUniform" if dtype is np.float32 else "GenerateUniformDouble"
        return self._numbers(name, count, dtype)

    def __del__(self) -> None:
        self._curand.curandDestroyGenerator(self._handle)
