"""The switches of pycaffe: mode, device, seed and place among the solvers, all of the calling thread."""

from __future__ import annotations

from refcaffe import context
from refcaffe.device import runtime


def set_mode_cpu() -> None:
    """Compute on the host from now on."""
    context.current().mode = context.Mode.CPU


def set_mode_gpu() -> None:
    """Compute on the device from now on. Without a GPU this is accepted, and the first use of the device is refused."""
    context.current().mode = context.Mode.GPU


def set_device(device: int) -> None:
    """Make a device current. CheckError if there is none of that number."""
    runtime().set_device(device)


def set_random_seed(seed: int) -> None:
    """Start the calling thread's random stream anew."""
    context.current().set_random_seed(seed)


def solver_count() -> int:
    """How many solvers train together."""
    return context.current().solver_count


def set_solver_count(count: int) -> None:
    context.current().solver_count = count


def solver_rank() -> int:
    """The number of this thread's solver; number 0 logs, tests and snapshots."""
    return context.current().solver_rank


def set_solver_rank(rank: int) -> None:
    context.current().solver_rank = rank


def set_multiprocess(multiprocess: bool) -> None:
    """Say that the solvers that train together are processes, not threads."""
    context.current().multiprocess = multiprocess
