"""Original BVLC Caffe's semantics, exactly, in Python. ``import refcaffe as caffe`` and the old script runs.

Everything is imported when it is first asked for, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from refcaffe.blob import Blob as Blob
    from refcaffe.checks import CheckError as CheckError
    from refcaffe.layers.python import PyLayer as Layer
    from refcaffe.modes import set_device as set_device
    from refcaffe.modes import set_mode_cpu as set_mode_cpu
    from refcaffe.modes import set_mode_gpu as set_mode_gpu
    from refcaffe.modes import set_random_seed as set_random_seed
    from refcaffe.net import Net as Net
    from refcaffe.solvers import AdaDeltaSolver as AdaDeltaSolver
    from refcaffe.solvers import AdaGradSolver as AdaGradSolver
    from refcaffe.solvers import AdamSolver as AdamSolver
    from refcaffe.solvers import NesterovSolver as NesterovSolver
    from refcaffe.solvers import RMSPropSolver as RMSPropSolver
    from refcaffe.solvers import SGDSolver as SGDSolver
    from refcaffe.solvers import SolverAction as SolverAction
    from refcaffe.solvers import create as get_solver

TRAIN = 0
TEST = 1

# Public name -> module, and its name there if that is another.
_HOMES = {
    "Blob": "refcaffe.blob",
    "RMSPropSolver": "refcaffe.solvers",
    "NesterovSolver": "refcaffe.solvers",
    "AdamSolver": "refcaffe.solvers",
    "AdaGradSolver": "refcaffe.solvers",
    "AdaDeltaSolver": "refcaffe.solvers",
    "CheckError": "refcaffe.checks",
    "Layer": "refcaffe.layers.python:PyLayer",
    "Net": "refcaffe.net",
    "SGDSolver": "refcaffe.solvers",
    "SolverAction": "refcaffe.solvers",
    "get_solver": "refcaffe.solvers:create",
    "layer_type_list": "refcaffe.layers:layer_types",
    "set_device": "refcaffe.modes",
    "set_mode_cpu": "refcaffe.modes",
    "set_mode_gpu": "refcaffe.modes",
    "set_random_seed": "refcaffe.modes",
}
_MODULES = ("proto",)

__all__ = ["TEST", "TRAIN", "__version__", *sorted(_HOMES)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"refcaffe.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'refcaffe' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = getattr(importlib.import_module(module), attribute or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES, *_MODULES})
