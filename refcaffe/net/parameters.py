"""The parameters of a net: who owns them, who shares them, and how fast they learn."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.proto.strings import as_text

if TYPE_CHECKING:
    from refcaffe.layers.base import Layer
    from refcaffe.proto.caffe_pb2 import ParamSpec

_check = Checker("net.cpp")
_log = logging.getLogger("refcaffe.net.cpp")

PERMISSIVE = 1  # ParamSpec.DimCheckMode


class Parameters:
    """All parameter blobs in the order of the layers, and the learnable ones: those that own themselves.

    Per parameter: ``blobs``, ``owners`` (-1: its own), ``display_names``, ``places`` (number of the layer, number in
    it), ``learnable_ids``. Per learnable: ``learnable``, ``lr``, ``decay`` (multipliers), ``has_lr``, ``has_decay``.
    """

    def __init__(self) -> None:
        self.blobs: list[Blob] = []
        self.owners: list[int] = []
        self.display_names: list[str] = []
        self.places: list[tuple[int, int]] = []
        self.learnable_ids: list[int] = []
        self.learnable: list[Blob] = []
        self.lr: list[float] = []
        self.decay: list[float] = []
        self.has_lr: list[bool] = []
        self.has_decay: list[bool] = []
        self._by_name: dict[str, int] = {}
        self._layer_names: list[str] = []  # per parameter

    def append(self, layer: Layer, layer_id: int, index: int, default: ParamSpec) -> int:
        """Register parameter ``index`` of a layer; returns its number in the net."""
        spec = layer.param.param[index] if index < len(layer.param.param) else default
        name = as_text(spec.name)
        number = len(self.blobs)
        self.blobs.append(layer.blobs[index])
        self.display_names.append(name or str(index))
        self.places.append((layer_id, index))
        self._layer_names.append(as_text(layer.param.name))
        owner = self._by_name.get(name, -1) if name else -1
        self.owners.append(owner)
        if owner == -1:
            self._own(spec, name, number)
        else:
            self._share(spec, name, owner, number)
        return number

    def _own(self, spec: ParamSpec, name: str, number: int) -> None:
        if name:
            self._by_name[name] = number
        self.learnable_ids.append(len(self.learnable))
        self.learnable.append(self.blobs[number])
        self.lr.append(spec.lr_mult)
        self.decay.append(spec.decay_mult)
        self.has_lr.append(spec.HasField("lr_mult"))
        self.has_decay.append(spec.HasField("decay_mult"))

    def _share(self, spec: ParamSpec, name: str, owner: int, number: int) -> None:
        owner_layer, layer = self._layer_names[owner], self._layer_names[number]
        owner_index = self.places[owner][1]
        if context.current().root_solver:
            text = "Sharing parameters '%s' owned by layer '%s', param index %d"
            _log.info(text, name, owner_layer, owner_index)
        mine, theirs = self.blobs[number], self.blobs[owner]
        who = f"Cannot share param '{name}' owned by layer '{owner_layer}' with layer '{layer}'"
        owner_is = f"Owner layer param shape is {theirs.shape_string}"
        if spec.share_mode == PERMISSIVE:
            text = f"{who}; count mismatch.  {owner_is}; sharing layer shape is {mine.shape_string}"
            _check.eq(mine.count, theirs.count, "this_blob->count() == owner_blob->count()", text)
        else:
            text = f"{who}; shape mismatch.  {owner_is}; sharing layer expects shape {mine.shape_string}"
            _check(mine.shape == theirs.shape, "this_blob->shape() == owner_blob->shape()", text)
        learnable = self.learnable_ids[owner]
        self.learnable_ids.append(learnable)
        if spec.HasField("lr_mult"):
            if self.has_lr[learnable]:
                text = f"Shared param '{name}' has mismatched lr_mult."
                expression = "param_spec->lr_mult() == params_lr_[learnable_param_id]"
                _check.eq(spec.lr_mult, self.lr[learnable], expression, text)
            self.has_lr[learnable], self.lr[learnable] = True, spec.lr_mult
        if spec.HasField("decay_mult"):
            if self.has_decay[learnable]:
                text = f"Shared param '{name}' has mismatched decay_mult."
                expression = "param_spec->decay_mult() == params_weight_decay_[learnable_param_id]"
                _check.eq(spec.decay_mult, self.decay[learnable], expression, text)
            self.has_decay[learnable], self.decay[learnable] = True, spec.decay_mult

    def share(self) -> None:
        """Let every parameter that another owns use the owner's data and diff."""
        for blob, owner in zip(self.blobs, self.owners, strict=True):
            if owner >= 0:
                blob.share_data(self.blobs[owner])
                blob.share_diff(self.blobs[owner])

    def log_norms(self) -> None:
        """The line that debug_info ends a backward pass with: L1 and L2 norms of all learnable parameters."""
        sums = np.zeros(4, self.learnable[0].dtype if self.learnable else np.float32)
        for blob in self.learnable:
            sums += np.array([blob.asum_data(), blob.asum_diff(), blob.sumsq_data(), blob.sumsq_diff()], sums.dtype)
        l1, l2 = sums[:2], np.sqrt(sums[2:])
        text = "    [Backward] All net params (data, diff): L1 norm = (%g, %g); L2 norm = (%g, %g)"
        _log.error(text, l1[0], l1[1], l2[0], l2[1])
