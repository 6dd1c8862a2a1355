"""WindowData: rectangles cut out of images, of the foreground and of the background."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.data import decode, workers
from refcaffe.data.prefetch import Batch, Load
from refcaffe.data.queue import QueueClosed
from refcaffe.data.windows import Warp, Window, WindowFile, warp
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, register
from refcaffe.layers.base_data import PrefetchingLayer
from refcaffe.proto import caffe_pb2, io
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.rng import Stream
from refcaffe.telling import telling

_check = Checker("window_data_layer.cpp")
_log = logging.getLogger("refcaffe.window_data_layer.cpp")


@register("WindowData")
class WindowData(PrefetchingLayer):
    """Top 0: ``batch_size`` windows at a time, first of the background, then of the foreground, drawn by chance.

    Top 1: their labels, 0 for the background.
    """

    exact_bottoms = 0
    exact_tops = 2

    def data_layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param, transform = self.param.window_data_param, self.param.transform_param
        _log.info(
            "Window data layer:\n  foreground (object) overlap threshold: %g\n"
            "  background (non-object) overlap threshold: %g\n  foreground sampling fraction: %g\n"
            "  cache_images: %d\n  root_folder: %s",
            param.fg_threshold, param.bg_threshold, param.fg_fraction, param.cache_images, param.root_folder,
        )  # fmt: skip
        needs_rand = transform.mirror or transform.crop_size
        stream = context.current().stream.sub_stream() if needs_rand else None
        windows = WindowFile(param)
        self._loader = _Loader(self.param, windows, stream, self.dtype)
        if not windows.complete:  # the batches have no shape then, which is soon complained of
            return
        _log.info("Amount of context padding: %d", param.context_pad)
        _log.info("Crop mode: %s", param.crop_mode)
        crop = to_int(transform.crop_size)
        _check.gt(crop, 0, "crop_size > 0")
        self.shape_batches(top, (to_int(param.batch_size), windows.channels, crop, crop))
        _log.info("output data size: %d,%d,%d,%d", *top[0].shape)
        self._loader.read_mean(windows.channels)

    def loader(self) -> Load:
        return self._loader.load


class _Unreadable(Exception):
    """The image of a sample cannot be read."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Loader:
    """Samples windows and puts them into batches."""

    def __init__(self, param: LayerParameter, windows: WindowFile, stream: Stream | None, dtype: np.dtype[Any]) -> None:
        self._param = param.window_data_param
        self._transform = param.transform_param
        self._windows = windows
        self._stream = stream
        self._words = 1 + self._transform.mirror  # for a window
        self._dtype = dtype
        self._mean: NDArray[Any] | None = None  # (channels, height, width), or (channels, 1, 1)
        self._mean_offset: int | None = None  # of a mean image

    def read_mean(self, channels: int) -> None:
        """The mean to subtract: an image from a file, or values."""
        transform = self._transform
        if transform.HasField("mean_file"):
            _log.info("Loading mean file from: %s", transform.mean_file)
            mean = Blob(dtype=self._dtype)
            mean.from_proto(io.read_binary(transform.mean_file, caffe_pb2.BlobProto))
            self._mean = mean.cpu_data().reshape(mean.num, mean.channels, mean.height, mean.width)[0]
            self._mean_offset = int((mean.width - transform.crop_size) / 2)  # towards zero, as in C
        if len(transform.mean_value):
            values = np.array(transform.mean_value, self._dtype)
            text = f"Specify either 1 mean_value or as many as channels: {channels}"
            expression = "mean_values_.size() == 1 || mean_values_.size() == channels"
            _check(values.size in (1, channels), expression, text)
            self._mean = np.broadcast_to(values[:, np.newaxis, np.newaxis], (channels, 1, 1))

    def load(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        """Fill a batch. An image that cannot be read ends it: what is behind stays 0, its labels what they were."""
        data, labels = batch.data.mutable_cpu_data(), batch.label.mutable_cpu_data()
        data.fill(0)
        samples = self._sample(len(data))
        done = drawn = len(samples)

        def fill(i: int) -> None:
            if stopping():
                raise QueueClosed
            window, mirror = samples[i]
            with telling(lambda: f"{window} of window file '{self._param.source}'"):
                pixels = self._read(window)
                if pixels is None:
                    raise _Unreadable(i)
                self._write(window, pixels, mirror, data[i])

        try:
            workers.for_each(range(len(samples)), fill)
        except _Unreadable as first:
            done, drawn = first.number, first.number + 1
            decode.could_not_open(self._windows.paths[samples[done][0].image])
            data[done:] = 0
        labels[:done] = [window.label for window, _ in samples[:done]]
        if self._stream is not None:
            self._stream.skip(self._words * drawn)

    def _sample(self, batch_size: int) -> list[tuple[Window, bool]]:
        """The windows of a batch, and which of them are to be turned; the words they need stay in the stream."""
        windows = self._windows
        foreground = int(np.float32(batch_size) * np.float32(self._param.fg_fraction))
        _check.gt(len(windows.foreground), 0, "fg_windows_.size() > 0")
        _check.gt(len(windows.background), 0, "bg_windows_.size() > 0")
        if not batch_size:
            return []
        _check(self._stream is not None, "prefetch_rng_")
        words = self._stream.ahead(batch_size * self._words).reshape(batch_size, -1).tolist()  # type: ignore[union-attr]
        samples = []
        for i, (number, *mirror) in enumerate(words):
            sampled = windows.foreground if i >= batch_size - foreground else windows.background
            samples.append((sampled[number % len(sampled)], bool(mirror and mirror[0] % 2)))
        return samples

    def _read(self, window: Window) -> NDArray[Any] | None:
        """The image that a window is in; None if it cannot be read."""
        windows = self._windows
        if not 0 <= window.image < len(windows.paths):
            _check.fatal(f"There is no image {window.image} among {len(windows.paths)}.")
        if self._param.cache_images:
            return decode.decode(windows.kept[window.image], decode.COLOR)
        return decode.read_image(windows.paths[window.image])

    def _write(self, window: Window, pixels: NDArray[Any], mirror: bool, out: NDArray[Any]) -> None:
        """Cut, resize, mirror, subtract and scale."""
        param, height, width = self._param, *pixels.shape[:2]
        square = param.crop_mode == "square"
        crop = len(out[0])
        w = warp(window, (height, width), crop, to_int(param.context_pad), square, mirror, self._dtype.type)
        _check_inside(w, height, width)
        part = pixels[w.y : w.y + w.height, w.x : w.x + w.width]
        part = decode.opencv().resize(part, (w.to_width, w.to_height))
        planes = (part[:, ::-1] if mirror else part).transpose(2, 0, 1)
        _check.eq(len(planes), len(out), "channels", "The window file gives the image another number of channels.")
        place = out[:, w.pad_h : w.pad_h + w.to_height, w.pad_w : w.pad_w + w.to_width]
        scale = self._dtype.type(param.scale)
        if self._mean is None:
            np.multiply(planes, scale, out=place, dtype=self._dtype)
        else:
            np.subtract(planes, self._mean_at(w, len(out)), out=place, dtype=self._dtype)
            place *= scale

    def _mean_at(self, w: Warp, channels: int) -> NDArray[Any]:
        mean, offset = self._mean, self._mean_offset
        assert mean is not None
        if offset is None:
            return mean
        top, left = offset + w.pad_h, offset + w.pad_w
        part = mean[:channels, top : top + w.to_height, left : left + w.to_width]
        if min(top, left) < 0 or part.shape != (channels, w.to_height, w.to_width):
            _check.fatal(f"The mean image, {mean.shape}, does not cover the window.")
        return part


def _check_inside(w: Warp, height: int, width: int) -> None:
    """Refuse a window that is not in its image, or of which nothing is left."""
    inside = w.x >= 0 and w.y >= 0 and w.x + w.width <= width and w.y + w.height <= height
    if not inside or min(w.width, w.height, w.to_width, w.to_height) < 1:
        raise CheckError(f"A window is not inside of its image of {height} x {width} pixels.", _check.file)
