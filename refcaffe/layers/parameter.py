"""Parameter: a blob that learns, as a top."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from refcaffe.blob import Blob
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_log = logging.getLogger("refcaffe.parameter_layer.hpp")


@register("Parameter")
class Parameter(Layer):
    """The parameter starts at 0; from the first forward pass on the top shares its data and diff."""

    exact_bottoms = 0
    exact_tops = 1
    forward_on_gpu = False
    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        shape = self.param.parameter_param.shape
        if self.blobs:
            _log.info("Skipping parameter initialization")
        else:
            self.blobs.append(Blob(dtype=self.dtype))
            self.blobs[0].reshape_proto(shape)
        top[0].reshape_proto(shape)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """The shape is fixed."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        top[0].share_data(self.blobs[0])
        top[0].share_diff(self.blobs[0])

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """The top's diff is the parameter's."""
