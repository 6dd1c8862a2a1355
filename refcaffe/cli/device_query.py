"""``refcaffe device_query``: show what devices are."""

from __future__ import annotations

import logging

from refcaffe.cli.brew import gpus, log, set_device
from refcaffe.cli.flags import Flags
from refcaffe.device import runtime

_log = logging.getLogger("refcaffe.common.cpp")

# Each line's title, as wide as upstream's, and the field of CUDA's ``cudaDeviceProp`` it shows.
_LINES = (
    ("Major revision number:", "major"),
    ("Minor revision number:", "minor"),
    ("Name:", "name"),
    ("Total global memory:", "totalGlobalMem"),
    ("Total shared memory per block:", "sharedMemPerBlock"),
    ("Total registers per block:", "regsPerBlock"),
    ("Warp size:", "warpSize"),
    ("Maximum memory pitch:", "memPitch"),
    ("Maximum threads per block:", "maxThreadsPerBlock"),
    ("Maximum dimension of block:", "maxThreadsDim"),
    ("Maximum dimension of grid:", "maxGridSize"),
    ("Clock rate:", "clockRate"),
    ("Total constant memory:", "totalConstMem"),
    ("Texture alignment:", "textureAlignment"),
    ("Concurrent copy and execution:", "deviceOverlap"),
    ("Number of multiprocessors:", "multiProcessorCount"),
    ("Kernel execution timeout:", "kernelExecTimeoutEnabled"),
)
_WIDTH = 31
_YES_NO = ("deviceOverlap", "kernelExecTimeoutEnabled")


def run(flags: Flags) -> int:
    """Log the properties of every device of ``--gpu``; returns the exit status."""
    log.info("Querying GPUs %s", flags.gpu)
    for device in gpus(flags):
        set_device(device)
        query(device)
    return 0


def query(device: int) -> None:
    """Log the properties of one device, as Caffe's ``DeviceQuery`` does."""
    properties = runtime().properties(device)
    _log.info("%-*s%s", _WIDTH, "Device id:", device)
    for title, field in _LINES:
        # CUDA 13 took two of the fields away.
        _log.info("%-*s%s", _WIDTH, title, _shown(field, properties.get(field, 0)))


def _shown(field: str, value: object) -> str:
    if field in _YES_NO:
        return "Yes" if value else "No"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
