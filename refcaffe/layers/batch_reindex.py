"""BatchReindex: rows of bottom 0 in the order that bottom 1 gives."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.kernels.rows import sum_rows
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.sort_order import sort_order
from refcaffe.side import HOST, Side

_check = Checker("batch_reindex_layer.cpp")


@register("BatchReindex")
class BatchReindex(Layer):
    """Rows may be left out and repeated. Indices are truncated toward zero; they get no gradient.

    A device adds up gradients in the order in which a sort leaves equal indices.
    """

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
        if side.gpu:
            self._device_backward(side, top[0], bottom)
            return
        dx, order, dy = side.mutable_diff(bottom[0]), side.data(bottom[1]), side.diff(top[0])
        dx.fill(0)
        np.add.at(dx, order.astype(np.int64), dy)

    def _device_backward(self, side: Side, top: Blob, bottom: Blobs) -> None:
        """Each row adds up what comes from it, which is found by tables, new ones in each pass, that the host makes."""
        index = HOST.data(bottom[1]).astype(np.int64)
        order = np.array(sort_order(index.tolist()), np.int64)
        counts = np.bincount(index, minlength=bottom[0].dim(0))
        begins = np.where(counts > 0, np.cumsum(counts) - counts, -1)
        tables = [Blob(values.shape, self.dtype) for values in (order, begins, counts)]
        for table, values in zip(tables, (order, begins, counts), strict=True):
            HOST.mutable_data(table)[...] = values
        dy, dx = side.diff(top), side.mutable_diff(bottom[0])
        order_on, begins_on, counts_on = map(side.data, tables)
        sum_rows(side, order_on, begins_on, counts_on, dy.reshape(len(dy), -1), dx.reshape(len(dx), -1))
