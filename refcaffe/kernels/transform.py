"""A part of an image: its channels apart; (pixel - mean) · scale, as it is or turned left to right."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels.compiled import compiled


def _part(images: Any, mirror: bool, h_off: int, w_off: int, out: Any) -> Any:
    height, width = out.shape[1:]
    part = images[:, h_off : h_off + height, w_off : w_off + width]
    return part[:, :, ::-1] if mirror else part


def _plain_less_values(pixels: Any, mirror: bool, h_off: int, w_off: int, mean: Any, scale: Any, out: Any) -> None:
    np.subtract(_part(pixels, mirror, h_off, w_off, out), mean[:, None, None], out=out, dtype=out.dtype)
    np.multiply(out, scale, out=out)


def _plain_less_image(pixels: Any, mirror: bool, h_off: int, w_off: int, mean: Any, scale: Any, out: Any) -> None:
    parts = _part(pixels, mirror, h_off, w_off, out), _part(mean, mirror, h_off, w_off, out)
    np.subtract(*parts, out=out, dtype=out.dtype)
    np.multiply(out, scale, out=out)


def _plain_apart(image: Any, h_off: int, w_off: int, height: int, width: int, planes: Any) -> None:
    part = slice(h_off, h_off + height), slice(w_off, w_off + width)
    planes[(slice(None), *part)] = image[part].transpose(2, 0, 1)


@compiled(plain=_plain_apart)
def apart(image: Any, h_off: int, w_off: int, height: int, width: int, planes: Any) -> None:
    """That part of ``image``, (H, W, C), to where it is in ``planes``, (C, H, W)."""
    channels = len(planes)
    for y in range(h_off, h_off + height):
        row = image[y, w_off : w_off + width].reshape(-1)
        if channels == 3:  # by a number that is known the loop is compiled to whole vectors
            b, g, r = (planes[0, y, w_off:], planes[1, y, w_off:], planes[2, y, w_off:])
            for x in range(np.uintp(width)):
                at = np.uintp(3) * x
                b[x], g[x], r[x] = row[at], row[at + np.uintp(1)], row[at + np.uintp(2)]
        else:
            for c in range(channels):
                to = planes[c, y, w_off:]
                for x in range(width):
                    to[x] = row[x * channels + c]


@compiled(plain=_plain_less_values)
def less_values(pixels: Any, mirror: bool, h_off: int, w_off: int, mean: Any, scale: Any, out: Any) -> None:
    """``out``, (C, h, w), from ``pixels``, (C, H, W), at an offset; ``mean``, (C,), and ``scale`` of out's type."""
    width = np.uintp(out.shape[2])  # unsigned: a signed index may count from the end, and is tested
    for c in range(out.shape[0]):
        less = mean[c]
        for y in range(out.shape[1]):
            row, to = pixels[c, h_off + y, w_off : w_off + out.shape[2]], out[c, y]
            if mirror:
                for x in range(width):
                    to[x] = (row[width - np.uintp(1) - x] - less) * scale
            else:
                for x in range(width):
                    to[x] = (row[x] - less) * scale


@compiled(plain=_plain_less_image)
def less_image(pixels: Any, mirror: bool, h_off: int, w_off: int, mean: Any, scale: Any, out: Any) -> None:
    """The same with ``mean``, (C, H, W), taken from where the pixels are."""
    width = np.uintp(out.shape[2])
    for c in range(out.shape[0]):
        for y in range(out.shape[1]):
            row, to = pixels[c, h_off + y, w_off : w_off + out.shape[2]], out[c, y]
            less = mean[c, h_off + y, w_off : w_off + out.shape[2]]
            if mirror:
                for x in range(width):
                    to[x] = (row[width - np.uintp(1) - x] - less[width - np.uintp(1) - x]) * scale
            else:
                for x in range(width):
                    to[x] = (row[x] - less[x]) * scale
