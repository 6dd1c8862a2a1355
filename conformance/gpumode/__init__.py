"""The four runs of kind ``gpumode`` (FORMAT-gpumode.md), and how they are compared.

``phases`` notes heads and copies, one file each plays a run (``layers``, ``nets``, ``solvers``, ``blobs``), ``judging``
compares, with the bounds of ``limits``.
"""

from __future__ import annotations

from collections.abc import Callable

from conformance.cases import Case, Recording
from conformance.engines.gpumode import GpuWorld
from conformance.gpumode import blobs, layers, nets, solvers

RUNS: dict[str, Callable[[Case, GpuWorld], Recording]] = {
    "blob": blobs.play,
    "layer": layers.play,
    "net": nets.play,
    "solver": solvers.play,
}
