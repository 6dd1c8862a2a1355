"""Image files to pixels, through OpenCV, which is imported when the first one comes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.checks import CheckError
from refcaffe.device.room import require

_log = logging.getLogger("refcaffe.io.cpp")

NATIVE, GRAY, COLOR = -1, 0, 1  # as OpenCV's IMREAD_UNCHANGED, IMREAD_GRAYSCALE and IMREAD_COLOR


def opencv() -> Any:
    """The module. CheckError if it is not installed."""
    try:
        import cv2
    except ImportError as error:
        text = "Encoded datum requires OpenCV; compile with USE_OPENCV."
        hint = f"pip install opencv-python-headless ({error})"
        raise CheckError(text, "data_transformer.cpp").within(hint) from None
    return cv2


def pixels_of(data: NDArray[np.uint8], mode: int) -> NDArray[Any] | None:
    """The pixels of an image file's bytes, (H, W) or (H, W, C), channels B, G, R (, A); None if it is no image.

    ``NATIVE`` leaves them as stored, of 8 or 16 bits, and does not turn the image by its EXIF orientation;
    ``GRAY`` and ``COLOR`` make 1 or 3 channels of 8 bits, and turn it.
    """
    cv2 = opencv()
    try:
        pixels: NDArray[Any] | None = cv2.imdecode(data, mode) if data.size else None
    except cv2.error:
        pixels = None
    return pixels


def decode(data: NDArray[np.uint8], mode: int) -> NDArray[Any]:
    """``pixels_of`` a record's data. What is no image is logged and gives (0, 0)."""
    pixels = pixels_of(data, mode)
    if pixels is None:
        _log.error("Could not decode datum ")
        return np.empty((0, 0), np.uint8)
    return pixels


def read_image(path: str, height: int = 0, width: int = 0, color: bool = True) -> NDArray[Any] | None:
    """The pixels of an image file, as 3 channels of 8 bits or 1, resized if a size is given; None if there are none."""
    try:
        data = np.fromfile(path, np.uint8)
    except (OSError, ValueError):  # the latter for a name that no file can have
        return None
    pixels = pixels_of(data, COLOR if color else GRAY)
    if pixels is not None and height > 0 and width > 0:
        require(height * width * (3 if color else 1))
        resized: NDArray[Any] = opencv().resize(pixels, (width, height))
        return resized
    return pixels


def could_not_open(path: str) -> None:
    """Log what upstream logs where ``read_image`` gives None."""
    _log.error("Could not open or find file %s", path)
