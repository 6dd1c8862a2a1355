"""Parameters in and out of a net: matched by layer name, from files, from protos and from other nets."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.hdf5 import is_hdf5
from refcaffe.net import hdf5
from refcaffe.net.read import read_trained_net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import write_binary
from refcaffe.proto.strings import as_text, put
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.net.net import Net
    from refcaffe.proto.caffe_pb2 import NetParameter
    from refcaffe.proto.trained import Numbers

_check = Checker("net.cpp")
_log = logging.getLogger("refcaffe.net.cpp")


def _target(net: Net, name: str) -> list[Blob] | None:
    """The parameters of the first layer of that name; None if there is no such layer."""
    if name not in net.layer_names:
        _log.info("Ignoring source layer %s", name)
        return None
    return net.all_layers[net.layer_names.index(name)].blobs


def copy_trained_layers(net: Net, param: NetParameter, numbers: Sequence[Numbers] = ()) -> None:
    """Copy the parameters that a NetParameter holds into the layers of the same names.

    ``numbers``: the data of its blobs in order, where they are apart from it (``read_trained_net``).
    """
    apart = iter(numbers)
    for source in param.layer:
        data = [next(apart, None) for _ in source.blobs]
        name = as_text(source.name)
        target = _target(net, name)
        if target is None:
            continue
        text = f"Incompatible number of blobs for layer {name}"
        _check.eq(len(target), len(source.blobs), "target_blobs.size() == source_layer.blobs_size()", text)
        for j, (blob, proto) in enumerate(zip(target, source.blobs, strict=True)):
            if not blob.shape_equals(proto):
                found = Blob()
                found.from_proto(proto, reshape=True, data=data[j])
                _check.fatal(
                    f"Cannot copy param {j} weights from layer '{name}'; shape mismatch.  Source param shape is "
                    f"{found.shape_string}; target param shape is {blob.shape_string}. To learn this layer's "
                    "parameters from scratch rather than copying from a saved net, rename the layer."
                )
            blob.from_proto(proto, reshape=False, data=data[j])


def copy_from_file(net: Net, path: str) -> None:
    """Copy parameters from a model file. What cannot be opened counts as HDF5, as it does in upstream."""
    if is_hdf5(path) is not False:
        hdf5.copy_trained_layers(net, path)
        return
    param, numbers = read_trained_net(path)
    with telling(lambda: f"copying weights from {path}"):
        copy_trained_layers(net, param, numbers)


def share_trained_layers(net: Net, other: Net) -> None:
    """Let the layers of the same names use the other net's parameter data (not diffs)."""
    for name, layer in zip(other.layer_names, other.all_layers, strict=True):
        target = _target(net, name)
        if target is None:
            continue
        text = f"Incompatible number of blobs for layer {name}"
        _check.eq(len(target), len(layer.blobs), "target_blobs.size() == source_layer->blobs().size()", text)
        for j, (blob, source) in enumerate(zip(target, layer.blobs, strict=True)):
            text = (
                f"Cannot share param {j} weights from layer '{name}'; shape mismatch.  Source param shape is "
                f"{source.shape_string}; target param shape is {blob.shape_string}"
            )
            _check(blob.shape == source.shape, "target_blobs[j]->shape() == source_blob->shape()", text)
            blob.share_data(source)


def to_proto(net: Net, write_diff: bool = False) -> NetParameter:
    """The net's definition after set-up, with parameters, and their diffs if asked."""
    param = caffe_pb2.NetParameter()
    put(param, "name", net.name)
    for layer in net.all_layers:
        layer.to_proto(param.layer.add(), write_diff)
    return param


def save(net: Net, path: str, write_diff: bool = False) -> None:
    """Write the net to a binary file; a file of that name is replaced only by a whole one."""
    write_binary(to_proto(net, write_diff), path)
