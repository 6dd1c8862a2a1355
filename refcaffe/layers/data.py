"""Data: the records of a database, transformed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.data.loader import BatchLoader
from refcaffe.data.prefetch import Load
from refcaffe.data.reader import DataReader, ReaderRecords
from refcaffe.data.records import CursorRecords
from refcaffe.layers.base import Blobs, register
from refcaffe.layers.base_data import PrefetchingLayer
from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter

_log = logging.getLogger("refcaffe.data_layer.cpp")


@register("Data")
class Data(PrefetchingLayer):
    """Top 0: ``batch_size`` records at a time, in the order of their keys, round and round. Top 1: their
    labels.

    Several solvers share the records of a TRAIN layer: each keeps those whose number modulo their count is
    its rank; in the Caffe of DataReader, ``reader`` gives each its part.
    """

    exact_bottoms = 0
    min_tops = 1
    max_tops = 2

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self._records: CursorRecords | ReaderRecords
        if context.current_build().reader_era:
            self.reader = DataReader(self.param)
            self._records = ReaderRecords(self.reader)
            self.prefetcher.on_wake = self.reader.full.close
            self.prefetcher.resources.callback(self.reader.close)
        else:
            self._records = CursorRecords(param.data_param.source, param.data_param.backend)
            self.prefetcher.resources.callback(self._records.close)

    def data_layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        batch_size = self.param.data_param.batch_size
        self._loader = BatchLoader(self._records, self.transformer, batch_size, self.output_labels)
        shape = self._loader.first_shape()
        self.shape_batches(top, shape)
        here = context.current()
        if here.root_solver:
            _log.info("output data size: %d,%d,%d,%d", *shape)
        if isinstance(self._records, CursorRecords) and self.phase != caffe_pb2.TEST:
            self._records.count, self._records.rank = here.solver_count, here.solver_rank

    def loader(self) -> Load:
        return self._loader.load
