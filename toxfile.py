"""tox's plugin for this project: where there is no GPU, environments that need one are skipped."""

import ctypes
import os

from tox.plugin import impl
from tox.tox_env.api import ToxEnv
from tox.tox_env.errors import Skip


def _has_gpu() -> bool:
    try:
        driver = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuInit(0) == 0)


@impl
def tox_on_install(tox_env: ToxEnv, arguments: object, section: str, of_type: str) -> None:
    """Called before anything is installed."""
    if "gpu" in tox_env.conf.name.split("-") and not _has_gpu():
        raise Skip("there is no CUDA GPU here")
