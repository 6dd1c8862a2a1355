"""One file per layer type, found by its Caffe name. Importing this package registers all of them."""

import importlib
import pkgutil

from refcaffe.layers.base import Layer, LossLayer, NeuronLayer, create, layer_types, register

__all__ = ["Layer", "LossLayer", "NeuronLayer", "create", "layer_types", "register"]

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
