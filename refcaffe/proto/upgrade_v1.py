"""Definitions of Caffe's second format (V1: ``layers { type: CONVOLUTION … }``) to the current one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from refcaffe.checks import Checker
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import put, put_all

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter, V1LayerParameter

_check = Checker("upgrade_proto.cpp")
_log = logging.getLogger("refcaffe.upgrade_proto.cpp")

# Name in V1's enum -> current type, where that is not made of the capitalised words.
_OTHER_TYPES = {
    "NONE": "", "ABSVAL": "AbsVal", "ARGMAX": "ArgMax", "BNLL": "BNLL", "HDF5_DATA": "HDF5Data",
    "HDF5_OUTPUT": "HDF5Output", "LRN": "LRN", "MVN": "MVN", "RELU": "ReLU", "SOFTMAX_LOSS": "SoftmaxWithLoss",
    "TANH": "TanH",
}  # fmt: skip

# The layers whose own messages once held what is in transform_param now.
_DATA_MESSAGES = {"DATA": "data_param", "IMAGE_DATA": "image_data_param", "WINDOW_DATA": "window_data_param"}
_TRANSFORM_FIELDS = ("scale", "mean_file", "crop_size", "mirror")


def layer_type(number: int) -> str:
    """The current name of a V1 layer type."""
    name = caffe_pb2.V1LayerParameter.LayerType.Name(number)
    return _OTHER_TYPES.get(name, "".join(word.capitalize() for word in name.split("_")))


def _data_message(layer: V1LayerParameter) -> Any:
    """The layer's message that may hold old transformation fields, or None."""
    name = _DATA_MESSAGES.get(caffe_pb2.V1LayerParameter.LayerType.Name(layer.type))
    return getattr(layer, name) if name else None


def needs_data_upgrade(net: NetParameter) -> bool:
    """Whether any data layer holds old transformation fields."""
    messages = [_data_message(layer) for layer in net.layers]
    return any(message.HasField(field) for message in messages if message is not None for field in _TRANSFORM_FIELDS)


def _put(message: Any, field: str, value: Any) -> None:
    if isinstance(value, str | bytes):
        put(message, field, value)
    else:
        setattr(message, field, value)


def upgrade_data(net: NetParameter) -> None:
    """Move old transformation fields of all data layers to transform_param, in place."""
    for layer in net.layers:
        message = _data_message(layer)
        if message is None:
            continue
        # Both messages are there afterwards, empty if need be.
        message.SetInParent()
        layer.transform_param.SetInParent()
        for field in _TRANSFORM_FIELDS:
            if message.HasField(field):
                _put(layer.transform_param, field, getattr(message, field))
                message.ClearField(field)


def _upgrade_layer(old: V1LayerParameter, new: LayerParameter) -> bool:
    """Write a V1 layer's current form; False if it holds a V0 layer, which is ignored."""
    if old.HasField("name"):
        put(new, "name", old.name)
    if old.HasField("type"):
        new.type = layer_type(old.type)
    for field in ("bottom", "top"):
        put_all(new, field, getattr(old, field))
    for field in ("include", "exclude", "blobs", "loss_weight"):
        getattr(new, field).extend(getattr(old, field))
    specs = (("name", old.param), ("share_mode", old.blob_share_mode), ("lr_mult", old.blobs_lr),
             ("decay_mult", old.weight_decay))  # fmt: skip
    for field, values in specs:
        for i, value in enumerate(values):
            while len(new.param) <= i:
                new.param.add()
            _put(new.param[i], field, value)
    for descriptor, value in old.ListFields():
        if descriptor.name.endswith("_param"):
            getattr(new, descriptor.name).CopyFrom(value)
    if old.HasField("layer"):
        _log.error("Input NetParameter has V0 layer -- ignoring.")
        return False
    return True


def upgrade(net: NetParameter) -> bool:
    """Bring a V1 net to the current format, in place; False if part of a layer had to be ignored."""
    if net.layer:
        _check.fatal(
            "Refusing to upgrade inconsistent NetParameter input; the definition includes both 'layer' and 'layers' "
            "fields. The current format defines 'layer' fields with string type like layer { type: 'Layer' ... } and "
            "not layers { type: LAYER ... }. Manually switch the definition to 'layer' format to continue."
        )
    compatible = True
    for i, old in enumerate(net.layers):
        if not _upgrade_layer(old, net.layer.add()):
            _log.error("Upgrade of input layer %d failed.", i)
            compatible = False
    net.ClearField("layers")
    return compatible
