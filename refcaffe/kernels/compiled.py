"""The decorator of the host's kernels: plain loops that Numba compiles at their first call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache, update_wrapper
from typing import Any

import numpy as np

_log = logging.getLogger("refcaffe.kernels")


@cache
def _compiler() -> Callable[..., Any] | None:
    try:
        from numba import config, njit
    except ImportError as missing:
        _log.warning("Kernels run in NumPy, some times slower: %s", missing)
        return None
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        _log.warning("Kernels run in NumPy, some times slower: NUMBA_DISABLE_JIT is set")
        return None
    compiler: Callable[..., Any] = njit(cache=True, nogil=True, error_model="numpy")
    return compiler


def has_compiler() -> bool:
    """Whether Numba is there and may compile; a warning is logged where not."""
    return _compiler() is not None


class Kernel:
    """A function that is compiled when it is first called, and cached on disk for the next process.

    Importing Numba takes longer than importing refcaffe, hence so late. No fused multiply-add and no reordering:
    every operation is rounded as it is written. The compiled loop runs without the GIL. Where Numba is missing
    ``plain`` runs, in NumPy, with the same bits as its result; without that the function as it is, slowly.
    """

    def __init__(self, function: Callable[..., Any], plain: Callable[..., Any] | None) -> None:
        update_wrapper(self, function)
        self._function = function
        self.plain = plain or function
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        if self._compiled is None:
            compiler = _compiler()
            self._compiled = self.plain if compiler is None else compiler(self._function)
        return self._compiled(*args)


def compiled(function: Callable[..., Any] | None = None, *, plain: Callable[..., Any] | None = None) -> Any:
    """Make a function of arrays and numbers, with plain loops inside, a ``Kernel``: decorator."""
    if function is None:
        return lambda function: Kernel(function, plain)
    return Kernel(function, plain)


def copied(source: Any, target: Any) -> Any:
    """``target`` with what ``source`` holds, copied unless they are the same memory.

    Elementwise kernels work in place on what this returns: of two arrays a compiled loop has to expect that they
    overlap, and where they do, as in a layer in place, it takes one element at a time.
    """
    if source.__array_interface__["data"][0] != target.__array_interface__["data"][0]:
        np.copyto(target, source)
    return target
