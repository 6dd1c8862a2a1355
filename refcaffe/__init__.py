"""Original BVLC Caffe's semantics, exactly, in Python. ``import refcaffe as caffe`` and the old script runs.

Everything is imported when it is first asked for, so that importing the package costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from refcaffe import alias as _alias
from refcaffe.alias import install_as_caffe

__version__ = "0.1.0"

if TYPE_CHECKING:
    from refcaffe.blob import Blob as Blob
    from refcaffe.checks import CheckError as CheckError
    from refcaffe.layers.python import BlobVec as BlobVec
    from refcaffe.layers.python import PyLayer
    from refcaffe.modes import set_device as set_device
    from refcaffe.modes import set_mode_cpu as set_mode_cpu
    from refcaffe.modes import set_mode_gpu as set_mode_gpu
    from refcaffe.modes import set_multiprocess as set_multiprocess
    from refcaffe.modes import set_random_seed as set_random_seed
    from refcaffe.modes import set_solver_count as set_solver_count
    from refcaffe.modes import set_solver_rank as set_solver_rank
    from refcaffe.modes import solver_count as solver_count
    from refcaffe.modes import solver_rank as solver_rank
    from refcaffe.net import Net as Net
    from refcaffe.pycaffe import classifier as classifier
    from refcaffe.pycaffe import coord_map as coord_map
    from refcaffe.pycaffe import detector as detector
    from refcaffe.pycaffe import draw as draw
    from refcaffe.pycaffe import io as io
    from refcaffe.pycaffe import net_spec as net_spec
    from refcaffe.pycaffe.classifier import Classifier as Classifier
    from refcaffe.pycaffe.detector import Detector as Detector
    from refcaffe.pycaffe.log import init_log as init_log
    from refcaffe.pycaffe.log import log as log
    from refcaffe.pycaffe.nccl import NCCL as NCCL
    from refcaffe.pycaffe.nccl import has_nccl as has_nccl
    from refcaffe.pycaffe.net_spec import NetSpec as NetSpec
    from refcaffe.pycaffe.net_spec import params as params
    from refcaffe.pycaffe.net_spec import to_proto as to_proto
    from refcaffe.pycaffe.timer import Timer as Timer
    from refcaffe.solvers import AdaDeltaSolver as AdaDeltaSolver
    from refcaffe.solvers import AdaGradSolver as AdaGradSolver
    from refcaffe.solvers import AdamSolver as AdamSolver
    from refcaffe.solvers import NesterovSolver as NesterovSolver
    from refcaffe.solvers import RMSPropSolver as RMSPropSolver
    from refcaffe.solvers import SGDSolver as SGDSolver
    from refcaffe.solvers import SolverAction as SolverAction
    from refcaffe.solvers import create

    Layer, get_solver = PyLayer, create

TRAIN = 0
TEST = 1

# Module -> the public names that are found there.
_HOMES = {
    "refcaffe.blob": ("Blob",),
    "refcaffe.checks": ("CheckError",),
    "refcaffe.layers.python": ("BlobVec",),
    "refcaffe.modes": (
        "set_device", "set_mode_cpu", "set_mode_gpu", "set_multiprocess", "set_random_seed", "set_solver_count",
        "set_solver_rank", "solver_count", "solver_rank",
    ),
    "refcaffe.net": ("Net",),
    "refcaffe.pycaffe.classifier": ("Classifier",),
    "refcaffe.pycaffe.detector": ("Detector",),
    "refcaffe.pycaffe.log": ("init_log", "log"),
    "refcaffe.pycaffe.nccl": ("NCCL", "has_nccl"),
    "refcaffe.pycaffe.net_spec": ("NetSpec", "params", "to_proto"),
    "refcaffe.pycaffe.timer": ("Timer",),
    "refcaffe.solvers": (
        "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "NesterovSolver", "RMSPropSolver", "SGDSolver", "SolverAction",
    ),
}  # fmt: skip
# Public name -> module and its name there.
_PLACES = {name: (module, name) for module, names in _HOMES.items() for name in names} | {
    "Layer": ("refcaffe.layers.python", "PyLayer"),
    "get_solver": ("refcaffe.solvers", "create"),
    "layer_type_list": ("refcaffe.layers", "layer_types"),
}
_MODULES = ("layers", "proto", *_alias.SURFACE)

__all__ = ["TEST", "TRAIN", "__version__", "install_as_caffe", *sorted(_PLACES)]  # noqa: PLE0604

_alias.install()


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        module = importlib.import_module(f"refcaffe.{name}")
        if name == "proto":
            importlib.import_module("refcaffe.proto.caffe_pb2")  # there without asking, as in pycaffe
        return module
    if name not in _PLACES:
        raise AttributeError(f"module 'refcaffe' has no attribute {name!r}")
    home, attribute = _PLACES[name]
    value = getattr(importlib.import_module(home), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_MODULES})
