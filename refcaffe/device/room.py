"""The host's memory: how much is left, asked before a lot of it is taken, and blocks of it.

Systems lend more than they have, and end the process when it touches what is not there: too late to refuse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

UNASKED = 1 << 24  # bytes: less is taken without a question, which costs some 50 microseconds
LINE = 64  # bytes of a cache line

_CGROUP = "/sys/fs/cgroup"


class NoRoom(MemoryError):
    """``nbytes`` were asked for and are not there. Nothing was taken."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(f"{nbytes} bytes of memory were asked for, {room():.0f} are left")
        self.nbytes = nbytes


def fits(nbytes: int) -> bool:
    """Whether the process can take so many bytes more."""
    return nbytes <= UNASKED or nbytes <= room()


def require(nbytes: int) -> None:
    """Raise NoRoom unless the process can take so many bytes more; ask before tables that parameters size."""
    if not fits(nbytes):
        raise NoRoom(nbytes)


def host_block(nbytes: int, clear: bool) -> NDArray[np.uint8]:
    """Bytes of the host that begin where a cache line does: else every vector of 64 bytes would lie in two."""
    block = (np.zeros if clear else np.empty)(nbytes + LINE - 1, np.uint8)
    start = -block.ctypes.data % LINE
    return block[start : start + nbytes]


def room() -> float:
    """How many bytes the process can still take: of the machine's, of its group's and its own limit.

    Infinite where the system does not say.
    """
    return max(0, min(_of_machine(), _of_group(), *_of_process()))


def _numbers(path: str) -> dict[str, int]:
    """The lines of a file that begin with a name and a number."""
    try:
        with open(path, encoding="ascii") as file:
            words = [line.split() for line in file]
    except OSError:
        return {}
    return {line[0].rstrip(":"): int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _of_machine() -> float:
    found = _numbers("/proc/meminfo")
    return 1024 * (found["MemAvailable"] + found.get("SwapFree", 0)) if "MemAvailable" in found else math.inf


def _of_group() -> float:
    """What a container's limit leaves; files that are only kept in memory count as free."""
    try:
        with open(f"{_CGROUP}/memory.max", encoding="ascii") as limit, open(f"{_CGROUP}/memory.current") as used:
            text = limit.read().strip()
            if text == "max":
                return math.inf
            return int(text) - int(used.read()) + _numbers(f"{_CGROUP}/memory.stat").get("file", 0)
    except (OSError, ValueError):
        return math.inf


def _of_process() -> Iterator[float]:
    """What ``ulimit -v`` and ``ulimit -d`` leave."""
    yield math.inf
    try:
        import resource

        with open("/proc/self/statm", encoding="ascii") as file:
            pages = [int(word) for word in file.read().split()]
    except (ImportError, OSError):
        return
    for kind, used in ((resource.RLIMIT_AS, pages[0]), (resource.RLIMIT_DATA, pages[5])):
        limit = resource.getrlimit(kind)[0]
        if limit != resource.RLIM_INFINITY:
            yield limit - used * resource.getpagesize()
