"""Parameters of a net in HDF5: ``/data/<layer>/<number>``, and their diffs in ``/diff``."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from refcaffe.checks import Checker, CheckError
from refcaffe.hdf5 import (
    count_links,
    create_group,
    created,
    has_link,
    link_names,
    load_blob,
    open_group,
    opened,
    save_blob,
)
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.net.net import Net

_FILE = "net.cpp"

_check = Checker(_FILE)
_log = logging.getLogger("refcaffe.net.cpp")


def copy_trained_layers(net: Net, path: str) -> None:
    """Copy parameters from a file into the layers of the same names; of several of one name into the last."""
    by_name = {name: i for i, name in enumerate(net.layer_names)}
    unreadable = f"Error reading weights from {path}"
    with opened(path, CheckError(f"Check failed: file_hid >= 0 (-1 vs. 0) Couldn't open {path}", _FILE)) as file:
        data = open_group(file, "data", CheckError(f"Check failed: data_hid >= 0 (-1 vs. 0) {unreadable}", _FILE))
        with telling(lambda: f"copying weights from {path}"):
            for name in link_names(data):
                if name not in by_name:
                    _log.info("Ignoring source layer %s", name)
                    continue
                failed = CheckError(f"Check failed: layer_hid >= 0 (-1 vs. 0) {unreadable}", _FILE)
                _copy_layer(net, by_name[name], open_group(data, name, failed))


def _copy_layer(net: Net, i: int, group: Any) -> None:
    name, blobs = net.layer_names[i], net.all_layers[i].blobs
    text = f"Incompatible number of blobs for layer {name}"
    _check.le(count_links(group), len(blobs), "num_source_params <= target_blobs.size()", text)
    for j, blob in enumerate(blobs):
        if has_link(group, str(j)):
            with telling(partial("layer '{}', parameter {}".format, name, j)):
                load_blob(group, str(j), blob)
        # Of shared parameters a file has the owner's alone.
        elif net.parameters.owners[net.param_ids[i][j]] == -1:
            _check.fatal(text)


def save(net: Net, path: str, write_diff: bool = False) -> None:
    """Write every layer's group: the parameters that it owns, and the diffs of all of its parameters if asked."""
    with created(path, _cannot("file_hid", f"Couldn't open {path} to save weights.")) as file:
        failed = f"Error saving weights to {path}."
        data = create_group(file, "data", _cannot("data_hid", failed))
        diff = create_group(file, "diff", _cannot("diff_hid", failed)) if write_diff else None
        for i, (name, layer) in enumerate(zip(net.layer_names, net.all_layers, strict=True)):
            layer_data = create_group(data, name, _cannot("layer_data_hid", failed).within(f"layer '{name}'"))
            layer_diff = create_group(diff, name, _cannot("layer_diff_hid", failed)) if write_diff else None
            for j, (number, blob) in enumerate(zip(net.param_ids[i], layer.blobs, strict=True)):
                if net.parameters.owners[number] == -1:
                    save_blob(layer_data, str(j), blob.cpu_data())
                if write_diff:
                    save_blob(layer_diff, str(j), blob.cpu_diff())


def _cannot(handle: str, text: str) -> CheckError:
    return CheckError(f"Check failed: {handle} >= 0 (-1 vs. 0) {text}", _FILE)
