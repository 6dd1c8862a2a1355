"""What Caffe's own commands share: choosing the device."""

from __future__ import annotations

import logging
import re

from refcaffe import context
from refcaffe.checks import Checker, CheckError
from refcaffe.cli.flags import Flags
from refcaffe.context import Mode
from refcaffe.device import NO_GPU, NO_GPU_HINT, runtime

check = Checker("caffe.cpp")
log = logging.getLogger("refcaffe.caffe.cpp")

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")


def gpus(flags: Flags) -> list[int]:
    """The devices that ``--gpu`` names."""
    if flags.gpu == "all":
        if not runtime().has_gpu:
            check.fatal(NO_GPU)
        return list(range(runtime().device_count()))
    names = flags.gpu.split(",") if flags.gpu else []
    if not all(_NUMBER.fullmatch(name) for name in names):
        check.fatal(f"--gpu: '{flags.gpu}' is not a list of device numbers")
    return [int(name) for name in names]


def set_device(device: int) -> None:
    """Make a device current, in GPU mode."""
    if not runtime().has_gpu:
        raise CheckError(NO_GPU, "common.cpp").within(NO_GPU_HINT)
    runtime().set_device(device)
    context.current().mode = Mode.GPU


def log_names(text: str, *devices: int) -> None:
    """Log the names of devices, as far as they are there; ``text`` has places for number and name."""
    for device in devices:
        if device in range(runtime().device_count()):
            log.info(text.format(device, runtime().properties(device)["name"]))


def choose_device(flags: Flags, named: bool = False) -> None:
    """CPU mode, or GPU mode on the first device of ``--gpu``; says which, with its name if asked."""
    numbers = gpus(flags)
    if numbers:
        log.info("Use GPU with device ID %d", numbers[0])
        if named:
            log_names("GPU device name: {1}", numbers[0])
        set_device(numbers[0])
    else:
        log.info("Use CPU.")
        context.current().mode = Mode.CPU
