"""What data layers share: a transformer, and, for most of them, batches that a thread fills in advance."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.data.prefetch import Load, Prefetcher
from refcaffe.data.transformer import DataTransformer
from refcaffe.layers.base import Blobs, Layer
from refcaffe.side import Side

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter


class BaseDataLayer(Layer):
    """Images, transformed, and, if there is a second top, their labels."""

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.output_labels = len(top) > 1
        self.transformer = DataTransformer(self.param.transform_param, self.phase, self.dtype)
        self.transformer.init_rand()
        self.data_layer_set_up(bottom, top)

    def data_layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        """Shape the tops."""
        raise NotImplementedError(f"{type(self).__name__}.data_layer_set_up")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """The data decide, not the bottoms."""

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """There is nothing to propagate to."""


_READER_ERA_BATCHES = 3


class PrefetchingLayer(BaseDataLayer):
    """A data layer with batches in advance. Its thread ends with ``close`` or when nobody has the layer any
    more.

    1.0 lets the tops point to a batch's memory; the Caffe of DataReader has three batches and copies them.
    ``data_layer_set_up`` calls ``shape_batches``. What a type opens in its constructor it gives to
    ``prefetcher.resources``, to be closed after the thread.
    """

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.copies = context.current_build().reader_era
        count = _READER_ERA_BATCHES if self.copies else param.data_param.prefetch
        self.prefetcher = Prefetcher(count, self.dtype, param.name)
        self._end = weakref.finalize(self, self.prefetcher.abandon)

    def loader(self) -> Load:
        """The function that fills batches on the thread; if it knew the layer, it would keep it alive."""
        raise NotImplementedError(f"{type(self).__name__}.loader")

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        super().layer_set_up(bottom, top)
        self.prefetcher.allocate(self.output_labels)
        self.transformer.init_rand()
        # With copies only the data go to the device in advance.
        self.prefetcher.start(self.loader(), self.output_labels and not self.copies)

    def shape_batches(self, top: Blobs, shape: Sequence[int]) -> None:
        """Give tops and batches ``shape``, and a label for each item."""
        for blobs in [top, *(batch.blobs(self.output_labels) for batch in self.prefetcher.batches)]:
            blobs[0].reshape(shape)
            if self.output_labels:
                blobs[1].reshape(shape[:1])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """Let the tops point to the memory of the next batch, which stays as it is until the next forward."""
        if self.copies:
            self._copy(side, top)
            return
        batch = self.prefetcher.take()
        for blob, source in zip(top, batch.blobs(self.output_labels), strict=True):
            blob.reshape_like(source)
            memory = source.data_memory()
            if side.gpu:
                blob.set_gpu_data(memory.mutable_gpu_data())
            else:
                blob.set_cpu_data(memory.mutable_cpu_data())

    def _copy(self, side: Side, top: Blobs) -> None:
        batch = self.prefetcher.take("Data layer prefetch queue empty")
        for blob, source in zip(top, batch.blobs(self.output_labels), strict=True):
            blob.reshape_like(source)
            side.copy(side.mutable_data(blob), side.data(source))
        self.prefetcher.give_back()

    def close(self) -> None:
        """End the thread, wait for it, and close what the layer has open; harmless the second time."""
        self._end.detach()
        self.prefetcher.close()
