"""One file per layer type, found by its Caffe name. Importing this package registers all of them."""

import importlib
import pkgutil
from typing import Any

from refcaffe.layers.base import Layer, LossLayer, NeuronLayer, create, layer_types, register

__all__ = ["Layer", "LossLayer", "NeuronLayer", "create", "layer_types", "register"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")


def __getattr__(name: str) -> Any:
    """pycaffe's ``layers``: ``layers.Convolution(bottom, num_output=8)`` is a layer of a ``NetSpec``."""
    if not name[:1].isupper():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("refcaffe.pycaffe.net_spec").layers, name)
