"""Filter: the rows that a selector picks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("filter_layer.cpp")


@register("Filter")
class Filter(Layer):
    """The last bottom selects rows of all others, by values other than 0; ``reshape`` looks at it.

    At set-up the tops keep the full batch, since there is nothing to look at yet.
    """

    min_bottoms = 2
    min_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        _check.eq(len(top), len(bottom) - 1, "top.size() == bottom.size() - 1")
        self.first_reshape = True

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        *filtered, selector = bottom
        for dim in selector.shape[1:]:
            text = "Selector blob dimensions must be singletons (1), except the first"
            _check.eq(dim, 1, "bottom[selector_index]->shape(i) == 1", text)
        for blob in filtered:
            text = "Each bottom should have the same 0th dimension as the selector blob"
            expression = "bottom[selector_index]->shape(0) == bottom[i]->shape(0)"
            _check.eq(selector.dim(0), blob.dim(0), expression, text)
        self.rows = np.flatnonzero(selector.cpu_data())
        count = filtered[0].shape[0] if self.first_reshape else len(self.rows)
        self.first_reshape = False
        for blob, x in zip(top, filtered, strict=True):
            blob.reshape(count, *x.shape[1:])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        for blob, x in zip(top, bottom[:-1], strict=True):
            data, y = side.data(x), side.mutable_data(blob)
            if side.gpu:
                for n, row in enumerate(self.rows):
                    side.copy(y[n], data[row])
            else:
                y[...] = data[self.rows]

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if propagate_down[-1]:
            _check.fatal("FilterLayer cannot backpropagate to filter index inputs")
        for blob, x, wanted in zip(top, bottom, propagate_down, strict=False):
            if wanted:
                # Upstream divides by this number.
                _check(blob.shape[0], "top[i]->shape(0)", "Nothing was selected, so there is no gradient.")
                dx, dy = side.mutable_diff(x), side.mutable_diff(blob)
                dx.fill(0)
                if side.gpu:
                    for n, row in enumerate(self.rows):
                        side.copy(dx[row], dy[n])
                else:
                    dx[self.rows] = dy
