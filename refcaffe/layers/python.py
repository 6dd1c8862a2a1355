"""Python: a layer that the user wrote, found by module and class name, as in pycaffe."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import as_text
from refcaffe.side import Side

_check = Checker("python_layer.hpp")


class BlobVec(list[Blob]):
    """A list of blobs that makes new ones."""

    def __init__(self, blobs: Iterable[Blob] = (), dtype: DTypeLike = np.float32) -> None:
        super().__init__(blobs)
        self.dtype = np.dtype(dtype)

    def add_blob(self, *shape: int) -> None:
        """Append a blob of a shape, filled with 0."""
        self.append(Blob(shape, self.dtype))


class PyLayer:
    """What a user's layer derives from: ``refcaffe.Layer``.

    Override the four methods. ``bottom`` and ``top`` are lists of Blob, whose ``data`` and ``diff`` are NumPy
    arrays to write into. Before ``setup`` the object gets ``param_str`` (from the definition) and ``phase``
    (0 TRAIN, 1 TEST); ``blobs`` are its parameters, made in ``setup`` by ``self.blobs.add_blob(*shape)``.
    """

    type = "Python"
    param_str: str
    phase: int
    blobs: BlobVec

    def __init__(self, param: caffe_pb2.LayerParameter) -> None:
        """``param`` is the layer's whole definition."""

    def setup(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Called once, before the first ``reshape``."""
        raise NotImplementedError(f"{type(self).__name__}.setup(bottom, top)")

    def reshape(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Shape the tops by the bottoms; called before every ``forward``."""
        raise NotImplementedError(f"{type(self).__name__}.reshape(bottom, top)")

    def forward(self, bottom: list[Blob], top: list[Blob]) -> None:
        """Compute the tops' data."""
        raise NotImplementedError(f"{type(self).__name__}.forward(bottom, top)")

    def backward(self, top: list[Blob], propagate_down: list[bool], bottom: list[Blob]) -> None:
        """Write the diffs of the bottoms that ``propagate_down`` names; add to those of ``blobs``."""
        raise NotImplementedError(f"{type(self).__name__}.backward(top, propagate_down, bottom)")


@register("Python")
class Python(Layer):
    """Runs ``instance``, an object of the user's class. What that raises goes through as it is."""

    forward_on_gpu = False
    backward_on_gpu = False

    def __init__(self, param: caffe_pb2.LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        parameters = BlobVec(self.blobs, self.dtype)
        self.blobs = parameters
        self.instance = _users_class(param)(param)
        self.instance.blobs = parameters

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param, here = self.param.python_param, context.current()
        if self.phase == caffe_pb2.TRAIN and here.solver_count > 1:
            if context.current_build().reader_era:
                if not param.share_in_parallel:
                    _check.fatal("PythonLayer is not implemented in Multi-GPU training")
            elif not here.multiprocess:
                _check.fatal("PythonLayer does not support CLI Multi-GPU, use train.py")
        self.instance.param_str = param.param_str
        self.instance.phase = self.phase
        self.instance.setup(list(bottom), list(top))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.instance.reshape(list(bottom), list(top))

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        self.instance.forward(list(bottom), list(top))

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        self.instance.backward(list(top), list(propagate_down), list(bottom))


def _users_class(param: caffe_pb2.LayerParameter) -> Any:
    """The class that the definition names; errors say which module and class are wanted, and where."""
    module, name = as_text(param.python_param.module), as_text(param.python_param.layer)
    wanted = f"layer '{as_text(param.name)}' wants class {name!r} of module {module!r}"
    try:
        if not module or module.startswith("."):
            raise ImportError("that is no name of a module")
        found = getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise ImportError(f"{wanted}, which cannot be imported: {error}", name=module) from error
    except AttributeError as error:
        raise AttributeError(f"{wanted}, which has no such class") from error
    if not (isinstance(found, type) and issubclass(found, PyLayer)):
        raise TypeError(f"{wanted}, which is not derived from refcaffe.Layer")
    return found
