"""Timer: milliseconds between two moments."""

from __future__ import annotations

import logging
import time

from refcaffe import context
from refcaffe.context import Mode
from refcaffe.device import runtime

_log = logging.getLogger("refcaffe.benchmark.cpp")


def _now() -> float:
    """Seconds; in GPU mode when the device has done what it was told so far."""
    cuda = getattr(runtime().xp, "cuda", None)
    if cuda is not None and context.current().mode is Mode.GPU:
        cuda.Device().synchronize()
    return time.perf_counter()


class Timer:
    """``start()``, ``stop()``, ``ms``. Reading ``ms`` stops a running timer."""

    def __init__(self) -> None:
        self._started: float | None = None
        self._ms: float | None = None

    def start(self) -> None:
        """Start, unless it runs already."""
        if self._started is None:
            self._started = _now()

    def stop(self) -> None:
        """Stop, if it runs."""
        if self._started is not None:
            self._ms = (_now() - self._started) * 1000
            self._started = None

    @property
    def ms(self) -> float:
        """Milliseconds from the last start to the stop; 0 for a timer that never ran."""
        self.stop()
        if self._ms is None:
            _log.warning("Timer has never been run before reading time.")
            return 0.0
        return self._ms
