"""Definitions of Caffe's first format (V0: ``layers { layer { type: "conv" … } }``) to the second (V1)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor

from refcaffe.checks import Checker
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import as_text, put, put_all

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter, V0LayerParameter, V1LayerParameter

_check = Checker("upgrade_proto.cpp")
_log = logging.getLogger("refcaffe.upgrade_proto.cpp")

# V0 type -> name in V1's enum, where that is not the type in capitals.
_OTHER_NAMES = {
    "conv": "CONVOLUTION", "images": "IMAGE_DATA", "innerproduct": "INNER_PRODUCT", "pool": "POOLING",
}  # fmt: skip
_SAME_NAMES = (
    "accuracy", "bnll", "concat", "data", "dropout", "euclidean_loss", "flatten", "hdf5_data", "hdf5_output", "im2col",
    "infogain_loss", "lrn", "multinomial_logistic_loss", "relu", "sigmoid", "softmax", "softmax_loss", "split", "tanh",
    "window_data",
)  # fmt: skip
TYPES = {**{name: name.upper() for name in _SAME_NAMES}, **_OTHER_NAMES}

_CONV, _POOL = "convolution_param", "pooling_param"
_BOTH = {"conv": _CONV, "innerproduct": "inner_product_param"}
_WINDOW = {"window_data": "window_data_param"}
_IMAGES = {"images": "image_data_param"}
_LRN = {"lrn": "lrn_param"}
_SOURCES = {"data": "data_param", "hdf5_data": "hdf5_data_param", **_IMAGES, **_WINDOW}

# V0 field, in the order of their upgrade -> (for each V0 type that has it, the message it moves to; its name there).
FIELDS: dict[str, tuple[dict[str, str], str]] = {
    "num_output": (_BOTH, "num_output"),
    "biasterm": (_BOTH, "bias_term"),
    "weight_filler": (_BOTH, "weight_filler"),
    "bias_filler": (_BOTH, "bias_filler"),
    "pad": ({"conv": _CONV, "pool": _POOL}, "pad"),
    "kernelsize": ({"conv": _CONV, "pool": _POOL}, "kernel_size"),
    "group": ({"conv": _CONV}, "group"),
    "stride": ({"conv": _CONV, "pool": _POOL}, "stride"),
    "pool": ({"pool": _POOL}, "pool"),
    "dropout_ratio": ({"dropout": "dropout_param"}, "dropout_ratio"),
    "local_size": (_LRN, "local_size"),
    "alpha": (_LRN, "alpha"),
    "beta": (_LRN, "beta"),
    "k": (_LRN, "k"),
    "source": ({**_SOURCES, "infogain_loss": "infogain_loss_param"}, "source"),
    "batchsize": (_SOURCES, "batch_size"),
    "rand_skip": ({"data": "data_param", **_IMAGES}, "rand_skip"),
    "shuffle_images": (_IMAGES, "shuffle"),
    "new_height": (_IMAGES, "new_height"),
    "new_width": (_IMAGES, "new_width"),
    "concat_dim": ({"concat": "concat_param"}, "concat_dim"),
    "det_fg_threshold": (_WINDOW, "fg_threshold"),
    "det_bg_threshold": (_WINDOW, "bg_threshold"),
    "det_fg_fraction": (_WINDOW, "fg_fraction"),
    "det_context_pad": (_WINDOW, "context_pad"),
    "det_crop_mode": (_WINDOW, "crop_mode"),
    "hdf5_output_param": ({"hdf5_output": ""}, "hdf5_output_param"),
}
# These move to transform_param, whatever the type.
TRANSFORM_FIELDS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}


def _put(message: Any, name: str, value: Any) -> None:
    """Set a field, append to a repeated one, copy a message."""
    field = getattr(message, name)
    if hasattr(field, "append"):
        field.append(value)
    elif hasattr(field, "CopyFrom"):
        field.CopyFrom(value)
    elif isinstance(value, str | bytes):
        put(message, name, value)
    else:
        unsigned = message.DESCRIPTOR.fields_by_name[name].type == FieldDescriptor.TYPE_UINT32
        setattr(message, name, value % 2**32 if unsigned else value)  # as C++ turns a negative number into one


def _upgrade_layer(old: V1LayerParameter, new: V1LayerParameter) -> bool:
    """Write a V0 layer's V1 form; False if it has a field that its type does not know."""
    put_all(new, "bottom", old.bottom)
    put_all(new, "top", old.top)
    if not old.HasField("layer"):
        return True
    layer: V0LayerParameter = old.layer
    if layer.HasField("name"):
        put(new, "name", layer.name)
    if layer.HasField("type"):
        if layer.type not in TYPES:
            _check.fatal(f"Unknown layer name: {as_text(layer.type)}")
        new.type = caffe_pb2.V1LayerParameter.LayerType.Value(TYPES[layer.type])
    new.blobs.extend(layer.blobs)
    new.blobs_lr.extend(layer.blobs_lr)
    new.weight_decay.extend(layer.weight_decay)
    for name, target in TRANSFORM_FIELDS.items():
        if layer.HasField(name):
            _put(new.transform_param, target, getattr(layer, name))
    compatible = True
    for name, (homes, target) in FIELDS.items():
        if not layer.HasField(name):
            continue
        if layer.type not in homes:
            shown = "shuffle" if name == "shuffle_images" else name
            _log.error("Unknown parameter %s for layer type %s", shown, layer.type)
            compatible = False
            continue
        home = homes[layer.type]
        _put(getattr(new, home) if home else new, target, getattr(layer, name))
    return compatible


def _without_padding(net: NetParameter) -> list[V1LayerParameter]:
    """The layers without padding layers; what read one reads its bottom and pads by itself."""
    kept: list[V1LayerParameter] = []
    producer: dict[str, V1LayerParameter | None] = dict.fromkeys(net.input)
    for layer in net.layers:
        padded = layer
        for j, name in enumerate(layer.bottom):
            if name not in producer:
                _check.fatal(f"Unknown blob input {as_text(name)} to layer {j}")
            source = producer[name]
            if source is None or source.layer.type != "padding":
                continue
            kind = layer.layer.type
            text = f"Padding layer input to non-convolutional / non-pooling layer type {kind}"
            _check(kind in ("conv", "pool"), '(layer_param.type() == "conv") || (layer_param.type() == "pool")', text)
            text = "Conv Layer takes a single blob as input."
            _check.eq(len(layer.bottom), 1, "layer_connection.bottom_size() == 1", text)
            text = "Padding Layer takes a single blob as input."
            _check.eq(len(source.bottom), 1, "source_layer.bottom_size() == 1", text)
            text = "Padding Layer produces a single blob as output."
            _check.eq(len(source.top), 1, "source_layer.top_size() == 1", text)
            padded = caffe_pb2.V1LayerParameter()
            padded.CopyFrom(layer)
            padded.layer.pad = source.layer.pad
            put_all(padded, "bottom", source.bottom)  # the only one
        if layer.layer.type != "padding":
            kept.append(padded)
        for name in layer.top:
            producer[name] = layer
    return kept


def needs_upgrade(net: NetParameter) -> bool:
    """Whether any of the net's ``layers`` is a V0 layer."""
    return any(layer.HasField("layer") for layer in net.layers)


def upgrade(net: NetParameter) -> bool:
    """Bring a V0 net to V1, in place; only name, layers, inputs and force_backward of the net survive.

    False if something was dropped because a layer's type does not know it.
    """
    layers = _without_padding(net)
    new = caffe_pb2.NetParameter()
    for field in ("name", "force_backward"):
        if net.HasField(field):
            _put(new, field, getattr(net, field))
    compatible = [_upgrade_layer(layer, new.layers.add()) for layer in layers]
    put_all(new, "input", net.input)
    new.input_dim.extend(net.input_dim)
    net.CopyFrom(new)
    return all(compatible)
