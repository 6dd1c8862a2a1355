"""How every engine takes its time; works in any Python 3."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LEAST = 0.2  # seconds


def mean_seconds(run: Callable[[], Any]) -> float:
    """Of one pass: the mean of as many as LEAST holds, after one to wake up; a pass that is as long counts alone."""
    start = time.perf_counter()
    run()
    took = time.perf_counter() - start
    if took > LEAST / 2:
        return took
    count = int(LEAST / took)
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count
