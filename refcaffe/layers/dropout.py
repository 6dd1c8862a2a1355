"""Dropout: a random mask in TRAIN, the identity in TEST."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.device import runtime
from refcaffe.layers.base import Blobs, NeuronLayer, register
from refcaffe.layers.blocks import each_block
from refcaffe.proto import caffe_pb2
from refcaffe.side import Side

_check = Checker("dropout_layer.cpp")

UINT_MAX = 2**32 - 1


@register("Dropout")
class Dropout(NeuronLayer):
    """Keeps an element with probability 1 - ratio, scaled by 1 / (1 - ratio); every forward draws a mask.

    The mask holds 0 and 1 on the host, on a device 32 random bits each, which are compared with the ratio.
    """

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        given = self.dtype.type(self.param.dropout_param.dropout_ratio)
        ratio = float(given)
        if context.current_build().debug:
            _check(ratio > 0, "threshold_ > 0.")
            _check(ratio < 1, "threshold_ < 1.")
        self.keep = 1.0 - ratio  # a double, so the mask is drawn in double arithmetic
        self.scale = self.dtype.type(1 / self.keep if self.keep else np.inf)
        highest = self.dtype.type(UINT_MAX) * given
        self.highest_dropped = np.uint32(int(highest) & UINT_MAX if np.isfinite(highest) else 0)
        self.mask = Blob(dtype=np.uint32)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, top)
        self.mask.reshape_like(bottom[0])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        mask = side.mutable_data(self.mask)
        if self.phase == caffe_pb2.TRAIN:
            if side.gpu:
                runtime().generator().words(mask.reshape(-1))
            else:
                context.current().stream.bernoulli(mask.size, self.keep, mask.reshape(-1))
            self._apply(side, x, mask, y)
        else:
            side.copy(y, x)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        dy, dx = side.diff(top[0]), side.mutable_diff(bottom[0])
        if self.phase == caffe_pb2.TRAIN:
            self._apply(side, dy, side.data(self.mask), dx)
        else:
            side.copy(dx, dy)

    def _apply(self, side: Side, x: Any, mask: Any, out: Any) -> None:
        def formula(x: Any, mask: Any, out: Any) -> None:
            kept = mask > self.highest_dropped if side.gpu else mask
            # The scale is a float on the device, in nets of doubles too.
            scale = self.dtype.type(np.float32(self.scale)) if side.gpu else self.scale
            side.xp.multiply(x * kept.astype(self.dtype), scale, out=out)

        each_block(side, formula, x, mask, out)
