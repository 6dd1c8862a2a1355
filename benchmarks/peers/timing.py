"""How every engine takes its time; works in any Python 3."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

LEAST = 0.2  # seconds


def mean_seconds(run: Callable[[], Any]) -> float:
    """Of one pass: the mean of as many as LEAST holds, at least one, after one to wake up, as ``caffe time`` does."""
    start = time.perf_counter()
    run()
    count = max(1, int(LEAST / (time.perf_counter() - start)))
    start = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - start) / count
