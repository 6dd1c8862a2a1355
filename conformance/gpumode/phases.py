"""What is noted of a phase: heads after it, and the copies it made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.engines.gpumode import Blobs, GpuWorld


def heads(world: GpuWorld, named: Blobs) -> dict[str, str]:
    return {name: world.heads(blob) for name, blob in named.items()}


def phase(world: GpuWorld, action: Callable[[], Any], shown: Callable[[], Blobs]) -> dict[str, Any]:
    """Carry out an action, and note it. ``shown``: the blobs whose heads are noted, asked for afterwards."""
    world.take_copies()  # what lay between the phases is nobody's
    action()
    return noted(world, shown())


def noted(world: GpuWorld, shown: Blobs) -> dict[str, Any]:
    """What happened since the last note."""
    world.settle()
    copies, prefetched = world.take_copies()
    found = {"heads": heads(world, shown), "copies": copies}
    return found | ({"prefetch_copies": prefetched} if prefetched else {})
