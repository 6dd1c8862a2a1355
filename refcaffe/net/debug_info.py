"""The lines of ``debug_info``: mean absolute values of what each layer reads and writes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refcaffe import context

if TYPE_CHECKING:
    from refcaffe.net.net import Net

_log = logging.getLogger("refcaffe.net.cpp")


def _line(direction: str, layer: str, kind: str, blob: str, what: str, total: float, count: int) -> None:
    if context.current().root_solver:
        mean = total / count if count else float("nan")
        _log.info("    [%s] Layer %s, %s blob %s %s: %g", direction, layer, kind, blob, what, mean)


def forward(net: Net, i: int) -> None:
    """After a layer's forward pass: its tops and all of its parameters."""
    name = net.layer_names[i]
    for number, top in zip(net.top_ids[i], net.tops[i], strict=True):
        _line("Forward", name, "top", net.blob_names[number], "data", top.asum_data(), top.count)
    for number, param in zip(net.param_ids[i], net.all_layers[i].blobs, strict=True):
        _line("Forward", name, "param", net.parameters.display_names[number], "data", param.asum_data(), param.count)


def backward(net: Net, i: int) -> None:
    """After a layer's backward pass: the bottoms and the parameters that got a gradient."""
    name, layer = net.layer_names[i], net.all_layers[i]
    for number, bottom, wanted in zip(net.bottom_ids[i], net.bottoms[i], net.bottom_need_backward[i], strict=True):
        if wanted:
            _line("Backward", name, "bottom", net.blob_names[number], "diff", bottom.asum_diff(), bottom.count)
    for index, param in enumerate(layer.blobs):
        if layer.wants_param_diff(index):
            _line("Backward", name, "param", str(index), "diff", param.asum_diff(), param.count)


def update(net: Net, number: int) -> None:
    """Before an update: parameter ``number`` and what will be taken from it."""
    if not context.current().root_solver:
        return
    parameters = net.parameters
    blob, shown, owner = parameters.blobs[number], parameters.display_names[number], parameters.owners[number]
    layer = net.layer_names[parameters.places[number][0]]
    diff = blob.asum_diff() / blob.count
    if owner < 0:
        data = blob.asum_data() / blob.count
        _log.info("    [Update] Layer %s, param %s data: %g; diff: %g", layer, shown, data, diff)
    else:
        owner_layer, owner_shown = net.layer_names[parameters.places[owner][0]], parameters.display_names[owner]
        text = "    [Update] Layer %s, param blob %s (owned by layer %s, param %s) diff: %g"
        _log.info(text, layer, shown, owner_layer, owner_shown, diff)
