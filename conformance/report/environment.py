"""What a run ran on: the machine and the libraries that numbers depend on."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = ("numpy", "numba", "protobuf", "opencv-python", "opencv-python-headless", "h5py", "lmdb", "cupy-cuda12x")


def environment() -> dict[str, str]:
    """Names and versions, as far as they are known."""
    found = {
        "system": platform.platform(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "libc": " ".join(platform.libc_ver()).strip(),
        "BLAS": _blas(),
    }
    return {key: value for key, value in (found | _versions()).items() if value}


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _blas() -> str:
    """The BLAS libraries that are loaded, with the kernels that they chose."""
    from threadpoolctl import threadpool_info

    return "; ".join(
        sorted(
            f"{pool['internal_api']} {pool.get('version')}, {pool.get('architecture', 'unknown')} kernels, "
            f"{pool['num_threads']} threads"
            for pool in threadpool_info()
            if pool["user_api"] == "blas"
        )
    )
