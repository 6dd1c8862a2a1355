"""Which layers and bottoms a backward pass visits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refcaffe import context

if TYPE_CHECKING:
    from refcaffe.net.net import Net

_log = logging.getLogger("refcaffe.net.cpp")


def prune(net: Net) -> None:
    """From the last layer to the first, take the need for a gradient from what no loss depends on,

    and from layers all of whose tops get no gradient. Works on the net's flags in place.
    """
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for i in range(len(net.all_layers) - 1, -1, -1):
        tops = [net.blob_names[blob] for blob in net.top_ids[i]]
        contributes = any(net.all_layers[i].loss(j) or name in under_loss for j, name in enumerate(tops))
        # A layer without tops counts as one whose tops are all skipped.
        all_skipped = all(name in skipped for name in tops)
        if net.layer_need_backward[i] and all_skipped:
            net.layer_need_backward[i] = False
            net.bottom_need_backward[i] = [False] * len(net.bottom_ids[i])
        if not contributes:
            net.layer_need_backward[i] = False
        if context.current().root_solver:
            verb = "needs" if net.layer_need_backward[i] else "does not need"
            _log.info("%s %s backward computation.", net.layer_names[i], verb)
        for j, blob in enumerate(net.bottom_ids[i]):
            name = net.blob_names[blob]
            if contributes:
                under_loss.add(name)
            else:
                net.bottom_need_backward[i][j] = False
            if not net.bottom_need_backward[i][j]:
                skipped.add(name)


def force(net: Net) -> None:
    """``force_backward``: every layer, every parameter, and every bottom that its layer does not forbid."""
    for i, layer in enumerate(net.all_layers):
        net.layer_need_backward[i] = True
        for j, blob in enumerate(net.bottom_ids[i]):
            needed = net.bottom_need_backward[i][j] or layer.allow_force_backward(j)
            net.bottom_need_backward[i][j] = needed
            net.blob_need_backward[blob] = net.blob_need_backward[blob] or needed
        for index in range(len(layer.blobs)):
            layer.set_param_propagate_down(index, True)
