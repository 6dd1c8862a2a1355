"""ImageData: image files from a list."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from numpy.typing import NDArray

from refcaffe import context
from refcaffe.checks import Checker
from refcaffe.data import decode
from refcaffe.data.image_list import Line, read_list
from refcaffe.data.loader import BatchLoader
from refcaffe.data.prefetch import Load
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, register
from refcaffe.layers.base_data import PrefetchingLayer
from refcaffe.proto import caffe_pb2
from refcaffe.proto.caffe_pb2 import ImageDataParameter
from refcaffe.rng import Stream

_check = Checker("image_data_layer.cpp")
_log = logging.getLogger("refcaffe.image_data_layer.cpp")


class _Image(NamedTuple):
    """A file of the list. ``number``: its line in the list as it is now, from 0."""

    param: ImageDataParameter
    number: int
    line: Line

    @property
    def label(self) -> int:
        return self.line.label

    def image(self) -> NDArray[Any]:
        param = self.param
        path = param.root_folder + self.line.name
        pixels = decode.read_image(path, param.new_height, param.new_width, param.is_color)
        if pixels is None:
            decode.could_not_open(path)
        _check(pixels is not None, "cv_img.data", f"Could not load {self.line.name}")
        return pixels  # type: ignore[return-value]

    def __str__(self) -> str:
        return f"image {self.number} of '{self.param.source}': {self.param.root_folder}{self.line.name}"


class _Images:
    """The lines of a list, round and round, shuffled before each round if there is a stream."""

    def __init__(self, param: ImageDataParameter, lines: list[Line], stream: Stream | None, start: int) -> None:
        self._param = param
        self._lines = lines
        self._stream = stream
        self._next = start

    def peek(self) -> _Image:
        return _Image(self._param, self._next, self._lines[self._next])

    def take(self) -> _Image:
        image = self.peek()
        self._next += 1
        if self._next == len(self._lines):
            self._next = 0
            if self._stream is not None:
                self._stream.shuffle(self._lines)
        return image

    def give_back(self, item: _Image) -> None:
        """Nobody waits for it."""


@register("ImageData")
class ImageData(PrefetchingLayer):
    """Top 0: ``batch_size`` images at a time, in the order of the list, round and round. Top 1: their labels."""

    exact_bottoms = 0
    exact_tops = 2

    def data_layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.image_data_param
        sizes = to_int(param.new_height), to_int(param.new_width)
        expression = "(new_height == 0 && new_width == 0) || (new_height > 0 && new_width > 0)"
        text = "Current implementation requires new_height and new_width to be set at the same time."
        _check(sizes == (0, 0) or min(sizes) > 0, expression, text)
        _log.info("Opening file %s", param.source)
        lines = read_list(param.source)
        _check(lines, "!lines_.empty()", "File is empty")
        stream = self._shuffled(lines)
        _log.info("A total of %d images.", len(lines))
        images = _Images(param, lines, stream, self._skipped(len(lines)))
        batch_size = to_int(param.batch_size)
        self._loader = BatchLoader(images, self.transformer, batch_size, labels=True)
        shape = self._loader.first_shape()
        _check.gt(batch_size, 0, "batch_size > 0", "Positive batch size required")
        self.shape_batches(top, shape)
        _log.info("output data size: %d,%d,%d,%d", *shape)

    def _shuffled(self, lines: list[Line]) -> Stream | None:
        """Shuffle the lines if that is wanted; returns the stream that does it again and again."""
        here, param = context.current(), self.param.image_data_param
        if param.shuffle:
            _log.info("Shuffling data")
            stream = here.stream.sub_stream()
            stream.shuffle(lines)
            return stream
        alike = self.phase == caffe_pb2.TRAIN and here.solver_rank > 0 and param.rand_skip == 0
        if alike and not context.current_build().reader_era:
            _log.warning("Shuffling or skipping recommended for multi-GPU")
        return None

    def _skipped(self, count: int) -> int:
        """The line to begin with in the first round."""
        limit = self.param.image_data_param.rand_skip
        if not limit:
            return 0
        skip = context.current().stream.raw() % limit
        _log.info("Skipping first %d data points.", skip)
        _check.gt(count, skip, "lines_.size() > skip", "Not enough points to skip")
        return skip

    def loader(self) -> Load:
        return self._loader.load
