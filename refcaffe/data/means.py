"""The mean that a DataTransformer subtracts: an image from a file, or a value per channel."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.proto import caffe_pb2, io
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import TransformationParameter

_check = Checker("data_transformer.cpp")
_log = logging.getLogger("refcaffe.data_transformer.cpp")


class Means:
    """What ``mean_file`` or ``mean_value`` say. CheckError if both are given or the file cannot be read."""

    def __init__(self, param: TransformationParameter, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self._file: Blob | None = None
        if param.HasField("mean_file"):
            text = "Cannot specify mean_file and mean_value at the same time"
            _check.eq(len(param.mean_value), 0, "param_.mean_value_size() == 0", text)
            self._file = self._load(param.mean_file)
        self.values: NDArray[Any] = np.array(param.mean_value, dtype)

    def _load(self, path: str) -> Blob:
        if context.current().root_solver:
            _log.info("Loading mean file from: %s", path)
        mean = Blob(dtype=self._dtype)
        with telling(lambda: f"mean file {path}"):
            mean.from_proto(io.read_binary(path, caffe_pb2.BlobProto))
        return mean

    def check_file(self, shape: Sequence[int], what: str) -> None:
        """Refuse an image, (channels, height, width), that the mean file does not fit; ``what`` names it."""
        mean = self._file
        if mean is not None:
            _check.eq(shape[0], mean.channels, f"{what}_channels == data_mean_.channels()")
            _check.eq(shape[1], mean.height, f"{what}_height == data_mean_.height()")
            _check.eq(shape[2], mean.width, f"{what}_width == data_mean_.width()")

    def check_values(self, channels: int, what: str) -> None:
        """Refuse a number of channels that the values do not fit."""
        count = self.values.size
        if count:
            expression = f"mean_values_.size() == 1 || mean_values_.size() == {what}_channels"
            text = f"Specify either 1 mean_value or as many as channels: {channels}"
            _check(count in (1, channels), expression, text)

    def spread(self, channels: int) -> None:
        """Use a single value for each channel, from now on."""
        values = self.values  # another thread may do the same
        if channels > 1 and values.size == 1:
            self.values = np.repeat(values, channels)

    @cached_property
    def image(self) -> NDArray[Any] | None:
        """The first image in the mean file, (C, H, W); None without a file."""
        mean = self._file
        if mean is None:
            return None
        images: NDArray[Any] = mean.cpu_data().reshape(mean.num, mean.channels, mean.height, mean.width)
        return images[0]

    def each(self, channels: int) -> NDArray[Any]:
        """What to subtract from each channel where there is no image."""
        return self.values if self.values.size else np.zeros(channels, self._dtype)
