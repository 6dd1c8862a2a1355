"""HDF5Output: data and labels into an HDF5 file."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.hdf5 import created, save_blob
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import HOST, Side

_check = Checker("hdf5_output_layer.cpp")
_log = logging.getLogger("refcaffe.hdf5_output_layer.cpp")


@register("HDF5Output")
class HDF5Output(Layer):
    """Bottoms: data and labels, written by the first forward pass, with four axes each.

    The file appears, whole, with ``close`` or when nobody has the layer any more.
    """

    exact_bottoms = 2
    exact_tops = 0

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        self.file_name = self.param.hdf5_output_param.file_name
        text = f"Check failed: file_id_ >= 0 (-1 vs. 0) Failed to open HDF5 file{self.file_name}"
        resources = ExitStack()
        self._file: Any = resources.enter_context(created(self.file_name, CheckError(text, _check.file)))
        self._end = weakref.finalize(self, resources.close)
        self._copies = Blob(dtype=self.dtype), Blob(dtype=self.dtype)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """There is nothing to shape."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        _check.ge(len(bottom), 2, "bottom.size() >= 2")
        count = bottom[0].num
        _check.eq(count, bottom[1].num, "bottom[0]->num() == bottom[1]->num()")
        for copy, blob in zip(self._copies, bottom, strict=True):
            copy.reshape(blob.num, blob.channels, blob.height, blob.width)
        for i in range(count):
            for copy, blob in zip(self._copies, bottom, strict=True):
                HOST.copy(_rows(HOST.mutable_data(copy))[i], _rows(side.data(blob))[i], side)
        _log.info("Saving HDF5 file %s", self.file_name)
        for name, copy in zip(("data", "label"), self._copies, strict=True):
            save_blob(self._file, name, copy.cpu_data())
        _log.info("Successfully saved %d rows", count)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Nothing comes back from a file."""

    def close(self) -> None:
        """Finish the file; harmless the second time."""
        if hasattr(self, "_end"):
            self._end()


def _rows(array: Any) -> Any:
    return array.reshape(len(array), -1)
