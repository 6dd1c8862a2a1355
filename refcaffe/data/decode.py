"""Image files in memory to pixels, through OpenCV, which is imported when the first one comes."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.checks import CheckError

_log = logging.getLogger("refcaffe.io.cpp")

NATIVE, GRAY, COLOR = -1, 0, 1  # as OpenCV's IMREAD_UNCHANGED, IMREAD_GRAYSCALE and IMREAD_COLOR


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        text = "Encoded datum requires OpenCV; compile with USE_OPENCV."
        hint = f"pip install opencv-python (or opencv-python-headless where there is no desktop) ({error})"
        raise CheckError(text, "data_transformer.cpp").within(hint) from None
    return cv2


def decode(data: NDArray[np.uint8], mode: int) -> NDArray[Any]:
    """The pixels of an image file's bytes: (H, W) or (H, W, C), channels B, G, R (, A).

    ``NATIVE`` leaves them as stored, of 8 or 16 bits, and does not turn the image by its EXIF orientation;
    ``GRAY`` and ``COLOR`` make 1 or 3 channels of 8 bits, and turn it. What is no image is logged and gives
    (0, 0).
    """
    cv2 = _opencv()
    try:
        image = cv2.imdecode(data, mode) if data.size else None
    except cv2.error:
        image = None
    if image is None:
        _log.error("Could not decode datum ")
        return np.empty((0, 0), np.uint8)
    pixels: NDArray[Any] = image
    return pixels
