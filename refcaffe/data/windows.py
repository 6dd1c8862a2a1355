"""Window files: images, each with rectangles that are labelled and say how far they overlap with an object."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np

from refcaffe.checks import Checker, CheckError
from refcaffe.proto.caffe_pb2 import WindowDataParameter

_check = Checker("window_data_layer.cpp")
_log = logging.getLogger("refcaffe.window_data_layer.cpp")

N = TypeVar("N", int, float)
Real = Any  # a float32 or float64


class Window(NamedTuple):
    """A rectangle in image number ``image``; its edges belong to it."""

    image: int
    label: int
    x1: int
    y1: int
    x2: int
    y2: int


class _Tokens:
    """The words of a file, as a stream of C++ reads them."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            with open(path, "rb") as file:
                self._words: Iterator[str] = iter([os.fsdecode(word) for word in file.read().split()])
        except (OSError, ValueError) as error:  # the latter for a name that no file can have
            text = f"Check failed: infile.good() Failed to open window file {path}\n"
            raise CheckError(text, _check.file).within(str(error)) from error

    def next(self) -> str | None:
        return next(self._words, None)

    def word(self, what: str) -> str:
        word = self.next()
        if word is None:
            _check.fatal(f"The window file {self._path} ends where {what} should be.")
        return word

    def number(self, kind: type[N], what: str) -> N:
        word = self.word(what)
        try:
            return kind(word)
        except ValueError:
            _check.fatal(f"The window file {self._path} has '{word}' where {what} should be.")


class WindowFile:
    """What a window file holds: paths of images, windows of the foreground and of the background.

    ``channels``: of the last image. ``complete``: whether the file was read to its end: an image that is to be kept
    in memory and cannot be read ends it. ``kept``: the bytes of the images by their number.
    """

    def __init__(self, param: WindowDataParameter) -> None:
        self.paths: list[str] = []
        self.kept: list[np.ndarray] = []
        self.foreground: list[Window] = []
        self.background: list[Window] = []
        self.channels = 0
        self.complete = False
        self._param = param
        self._per_class: Counter[int] = Counter({0: 0})
        self._read(_Tokens(param.source))

    def _read(self, tokens: _Tokens) -> None:
        hashtag = tokens.next()
        if hashtag is None:
            _check.fatal("Window file is empty")
        while hashtag is not None:
            image = tokens.number(int, "an image's number")
            _check.eq(hashtag, "#", 'hashtag == "#"')
            path = self._param.root_folder + tokens.word("an image's path")
            sizes = [tokens.number(int, f"an image's {name}") for name in ("channels", "height", "width")]
            self.channels = sizes[0]
            self.paths.append(path)
            if self._param.cache_images and not self._keep(path):
                return
            count = tokens.number(int, "a number of windows")
            for _ in range(count):
                self._add(image, tokens)
            if image % 100 == 0:
                _log.info("num: %d %s %d %d %d windows to process: %d", image, path, *sizes, count)
            hashtag = tokens.next()
        self.complete = True
        _log.info("Number of images: %d", image + 1)
        for label, number in sorted(self._per_class.items()):
            _log.info("class %d has %d samples", label, number)

    def _keep(self, path: str) -> bool:
        try:
            self.kept.append(np.fromfile(path, np.uint8))
        except (OSError, ValueError):
            _log.error("Could not open or find file %s", path)
            return False
        return True

    def _add(self, image: int, tokens: _Tokens) -> None:
        label = tokens.number(int, "a window's class")
        overlap = np.float32(tokens.number(float, "a window's overlap"))
        window = Window(image, label, *(tokens.number(int, "a window's edge") for _ in range(4)))
        if overlap >= np.float32(self._param.fg_threshold):
            _check.gt(label, 0, "label > 0")
            self.foreground.append(window)
            self._per_class[label] += 1
        elif overlap < np.float32(self._param.bg_threshold):
            self.background.append(window._replace(label=0))
            self._per_class[0] += 1


class Warp(NamedTuple):
    """From a rectangle of an image, (x, y, width, height), to a place in a square: size, offsets on both axes."""

    x: int
    y: int
    width: int
    height: int
    to_width: int
    to_height: int
    pad_w: int
    pad_h: int


def _round(value: Real) -> int:
    """To the nearest integer, halves away from zero."""
    whole = math.floor(abs(float(value)))
    whole += abs(float(value)) - whole >= 0.5
    return -whole if value < 0 else whole


def warp(
    window: Window, image: tuple[int, int], crop: int, context_pad: int, square: bool, mirror: bool, real: Any
) -> Warp:
    """How a window of an image, (height, width), goes into a square of ``crop``; ``real`` is the type of arithmetic.

    ``context_pad``: so many pixels of the square's edges show what is around the window.
    """
    x1, y1, x2, y2 = window[2:]
    if context_pad <= 0 and not square:
        return Warp(x1, y1, x2 - x1 + 1, y2 - y1 + 1, crop, crop, 0, 0)
    if crop == 2 * context_pad:
        _check.fatal(f"context_pad {context_pad} leaves nothing of crop_size {crop}.")
    scale = real(crop) / real(crop - 2 * context_pad)
    half_width, half_height = real((x2 - x1 + 1) / 2), real((y2 - y1 + 1) / 2)
    center_x, center_y = real(x1) + half_width, real(y1) + half_height
    if square:
        half_width = half_height = max(half_width, half_height)
    x, y = (
        _axis(center, half * scale, size, crop, real)
        for center, half, size in ((center_x, half_width, image[1]), (center_y, half_height, image[0]))
    )
    pad_w = x.pad_after if mirror else x.pad_before
    width, height = min(x.to_size, crop - pad_w), min(y.to_size, crop - y.pad_before)
    return Warp(x.start, y.start, x.size, y.size, width, height, pad_w, y.pad_before)


class _Axis(NamedTuple):
    """One axis of a Warp: the part inside the image, and, in the square, its size and what is missing around it."""

    start: int
    size: int
    to_size: int
    pad_before: int
    pad_after: int


def _axis(center: Real, half: Real, size: int, crop: int, real: Any) -> _Axis:
    first, last = _round(center - half), _round(center + half)
    unclipped = last - first + 1
    before, after = max(0, -first), max(0, last - size + 1)
    first, last = first + before, last - after
    scale = real(crop) / real(unclipped)
    sizes = (_round(real(length) * scale) for length in (last - first + 1, before, after))
    return _Axis(first, last - first + 1, *sizes)
