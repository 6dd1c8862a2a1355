"""MemoryData: arrays, records or images that the caller gives."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.data.datum import Datum
from refcaffe.data.transformer import Mat
from refcaffe.device import Memory
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, register
from refcaffe.layers.base_data import BaseDataLayer
from refcaffe.side import Side

_check = Checker("memory_data_layer.cpp")
_log = logging.getLogger("refcaffe.memory_data_layer.cpp")

_UNCONSUMED = "until current data has been consumed."
_NOT_MULTIPLE = "The added data must be a multiple of the batch size."


@register("MemoryData")
class MemoryData(BaseDataLayer):
    """Top 0: ``batch_size`` images at a time, round and round. Top 1: their labels.

    Arrays are given with ``reset`` and used where they are; records and images are added with
    ``add_datum_vector`` and ``add_mat_vector``, which transform them at once. What was added must be consumed
    before more is.
    """

    exact_bottoms = 0
    exact_tops = 2
    forward_on_gpu = False

    def data_layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.memory_data_param
        self.batch_size, self.channels, self.height, self.width = (
            to_int(value) for value in (param.batch_size, param.channels, param.height, param.width)
        )
        text = "batch_size, channels, height, and width must be specified and positive in memory_data_param"
        total = to_int(self.batch_size * self.channels * self.height * self.width)
        _check.gt(total, 0, "batch_size_ * size_ > 0", text)
        self._added_data, self._added_label = Blob(dtype=self.dtype), Blob(dtype=self.dtype)
        for data, label in ((top[0], top[1]), (self._added_data, self._added_label)):
            data.reshape(self._shape(self.batch_size))
            label.reshape(self.batch_size)
        self._data: NDArray[Any] | None = None
        self._has_new_data = False
        self._added_data.cpu_data()
        self._added_label.cpu_data()

    def _shape(self, count: int) -> tuple[int, int, int, int]:
        return count, self.channels, self.height, self.width

    def add_datum_vector(self, datums: Sequence[Datum]) -> None:
        """Add records, as many as make up whole batches."""
        _check(not self._has_new_data, "!has_new_data_", f"Can't add data {_UNCONSUMED}")
        self._check_number(len(datums), "There is no datum to add.")
        self.transformer.transform_datums(datums, self._added_data)
        self._use_added([datum.label for datum in datums])

    def add_mat_vector(self, mats: Sequence[Mat], labels: Sequence[int]) -> None:
        """Add images, (H, W) or (H, W, C) of uint8, as many as make up whole batches."""
        _check(not self._has_new_data, "!has_new_data_", f"Can't add mat {_UNCONSUMED}")
        self._check_number(len(mats), "There is no mat to add")
        self.transformer.transform_mats(mats, self._added_data)
        self._use_added(labels)

    def _check_number(self, count: int, none: str) -> None:
        _check.gt(count, 0, "num > 0", none)
        _check.eq(count % self.batch_size, 0, "num % batch_size_ == 0", _NOT_MULTIPLE)
        self._added_data.reshape(self._shape(count))
        self._added_label.reshape(count, 1, 1, 1)

    def _use_added(self, labels: Sequence[int]) -> None:
        self._added_label.mutable_cpu_data().reshape(-1)[:] = labels
        self.reset(self._added_data.mutable_cpu_data(), self._added_label.mutable_cpu_data())
        self._has_new_data = True

    def reset(self, data: NDArray[Any], labels: NDArray[Any]) -> None:
        """Use arrays, C-contiguous and of the layer's type, from their first image on: later changes show.

        ``data``: (n, channels, height, width), ``labels``: n of them, n a multiple of ``batch_size``.
        """
        _check.eq(len(data) % self.batch_size, 0, "n % batch_size_ == 0", "n must be a multiple of batch size")
        if self.param.HasField("transform_param"):
            _log.warning("%s does not transform array data on Reset()", self.type)
        self._data, self._labels = data.reshape(len(data), -1), labels.reshape(-1)
        self._position = 0

    def set_batch_size(self, size: int) -> None:
        """Give batches of another size from now on."""
        _check(not self._has_new_data, "!has_new_data_", f"Can't change batch_size {_UNCONSUMED}")
        self.batch_size = size
        self._added_data.reshape(self._shape(size))
        self._added_label.reshape(size, 1, 1, 1)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """Let the tops point into the arrays."""
        text = "MemoryDataLayer needs to be initialized by calling Reset"
        _check(self._data is not None, "data_", text)
        data, labels, start = self._data, self._labels, self._position
        assert data is not None
        end = start + self.batch_size
        if end > len(data):
            _check.fatal(f"A batch of {self.batch_size} from image {start} of {len(data)} on goes beyond the arrays.")
        shapes = self._shape(self.batch_size), (self.batch_size, 1, 1, 1)
        for blob, shape, array in zip(top, shapes, (data, labels), strict=True):
            blob.reshape(shape)
            blob.set_cpu_data(Memory.of(array[start:end]))
        self._position = end % len(data)
        if self._position == 0:
            self._has_new_data = False
