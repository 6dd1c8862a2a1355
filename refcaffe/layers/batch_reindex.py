"""BatchReindex: rows of bottom 0 in the order that bottom 1 gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("batch_reindex_layer.cpp")


@register("BatchReindex")
class BatchReindex(Layer):
    """Rows may be left out and repeated. Indices are truncated toward zero; they get no gradient."""

    exact_bottoms = 2
    exact_tops = 1

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        _check.eq(1, bottom[1].num_axes, "1 == bottom[1]->num_axes()")
        top[0].reshape(bottom[1].dim(0), *bottom[0].shape[1:])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        index = bottom[1].cpu_data()
        rows = bottom[0].dim(0)
        wrong = np.flatnonzero(~((index >= 0) & (index < rows)))
        if wrong.size:
            first = float(index[wrong[0]])
            text = "Index specified for reindex layer was"
            _check.ge(first, 0, "ridx_data[i] >= 0", f"{text} negative.")
            _check.lt(first, rows, "ridx_data[i] < initial_num", f"{text} greater than batch size.")
        if top[0].count == 0:
            return
        x, order = side.data(bottom[0]), side.data(bottom[1])
        side.mutable_data(top[0])[...] = x[order.astype(np.int64)]

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        _check(not propagate_down[1], "!propagate_down[1]", "Cannot backprop to index.")
        if not propagate_down[0]:
            return
        dx, order, dy = side.mutable_diff(bottom[0]), side.data(bottom[1]), side.diff(top[0])
        dx.fill(0)
        side.xp.add.at(dx, order.astype(np.int64), dy)
