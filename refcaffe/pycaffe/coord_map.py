"""How the coordinates of tops of a ``NetSpec`` relate, to crop feature maps so that they lie on each other.

A map is (axis, scale, shift): coordinate i of a top lies at scale * i + shift of the other; ``axis`` is the last one
that is not a coordinate, None where the map holds for any. Scale and shift are numbers, or arrays of one per axis.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from refcaffe.pycaffe.net_spec import Function, Top, layers

CoordMap = tuple[int | None, Any, Any]

PASS_THROUGH_LAYERS = [
    "AbsVal", "BatchNorm", "Bias", "BNLL", "Dropout", "Eltwise", "ELU", "Log", "LRN", "Exp", "MVN", "Power", "ReLU",
    "PReLU", "Scale", "Sigmoid", "Split", "TanH", "Threshold",
]  # fmt: skip

_LEGACY = {"pad_h", "pad_w", "kernel_h", "kernel_w", "stride_h", "stride_w"}


class UndefinedMapException(Exception):
    """A layer whose tops have no coordinates in common with its bottoms."""


class AxisMismatchException(Exception):
    """Maps of different axes."""


def conv_params(fn: Function) -> tuple[int, Any, Any, Any]:
    """(axis, stride, kernel size with its holes, pad) of a convolution, a pooling and the like."""
    params = fn.params.get("convolution_param", fn.params)
    if _LEGACY & set(fn.params):
        raise AssertionError("cropping does not support legacy _h/_w params")
    kernel, dilation = np.array(params["kernel_size"], ndmin=1), np.array(params.get("dilation", 1), ndmin=1)
    stride, pad = np.array(params.get("stride", 1), ndmin=1), np.array(params.get("pad", 0), ndmin=1)
    return params.get("axis", 1), stride, (kernel - 1) * dilation + 1, pad


def crop_params(fn: Function) -> tuple[int, Any]:
    """(axis, offset) of a Crop."""
    params = fn.params.get("crop_param", fn.params)
    return params.get("axis", 2), np.array(params.get("offset", 0), ndmin=1)


def coord_map(fn: Function) -> CoordMap:
    """The map of a layer, from its tops to its bottoms. UndefinedMapException if it has none."""
    if fn.type_name in ("Convolution", "Pooling", "Im2col"):
        axis, stride, kernel, pad = conv_params(fn)
        return axis, 1 / stride, (pad - (kernel - 1) / 2) / stride
    if fn.type_name == "Deconvolution":
        axis, stride, kernel, pad = conv_params(fn)
        return axis, stride, (kernel - 1) / 2 - pad
    if fn.type_name in PASS_THROUGH_LAYERS:
        return None, 1, 0
    if fn.type_name == "Crop":
        axis, offset = crop_params(fn)
        return axis - 1, 1, -offset
    raise UndefinedMapException(f"{fn.type_name} has no coordinates")


def compose(base_map: CoordMap, next_map: CoordMap) -> CoordMap:
    """First one map, then another. AxisMismatchException if both have an axis, and not the same."""
    axis, scale, shift = base_map
    next_axis, next_scale, next_shift = next_map
    if None not in (axis, next_axis) and axis != next_axis:
        raise AxisMismatchException(f"axis {axis} and axis {next_axis}")
    return next_axis if axis is None else axis, scale * next_scale, scale * next_shift + shift


def inverse(coord_map: CoordMap) -> CoordMap:
    """The way back."""
    axis, scale, shift = coord_map
    return axis, 1 / scale, -shift / scale


def _sources(top: Top) -> Iterator[tuple[Top, CoordMap]]:
    """The tops that a top lies on, each with the map to it. A Crop's second bottom only lends its size."""
    bottoms = top.fn.inputs[:1] if top.fn.type_name == "Crop" else top.fn.inputs
    try:
        for bottom in bottoms:
            yield bottom, coord_map(top.fn)
    except UndefinedMapException:
        return


def _spread(maps: dict[Top, CoordMap], top: Top) -> list[Top]:
    """Enter the maps to what a top lies on; returns those that are new. All ways to a top are taken to be equal."""
    new = [(source, step) for source, step in _sources(top) if source not in maps]
    maps.update((source, compose(maps[top], step)) for source, step in new)
    return [source for source, _ in new]


def coord_map_from_to(top_from: Top, top_to: Top) -> CoordMap:
    """The map from a top to another, by way of a blob that both come from. RuntimeError if there is none."""
    from_maps: dict[Top, CoordMap] = {top_from: (None, 1, 0)}
    waiting = [top_from]
    while waiting:
        waiting += _spread(from_maps, waiting.pop())
    to_maps: dict[Top, CoordMap] = {top_to: (None, 1, 0)}
    waiting = [top_to]
    while waiting:
        top = waiting.pop()
        if top in from_maps:
            return compose(to_maps[top], inverse(from_maps[top]))
        waiting += _spread(to_maps, top)
    raise RuntimeError("Could not compute map between tops; are they connected by spatial layers?")


def crop(top_from: Top, top_to: Top) -> Top:
    """A Crop of a top to another, at the offset where that lies.

    AssertionError if they differ in scale, or the offset is negative or not whole.
    """
    axis, scale, shift = coord_map_from_to(top_from, top_to)
    offset = -np.atleast_1d(shift)
    if not np.all(np.asarray(scale) == 1):
        raise AssertionError(f"scale mismatch on crop (a = {scale})")
    if not np.all(offset >= 0):
        raise AssertionError(f"cannot crop negative offset (b = {shift})")
    if not np.all(np.round(offset) == offset):
        raise AssertionError(f"cannot crop noninteger offset (b = {shift})")
    first = 2 if axis is None else axis + 1
    top: Top = layers.Crop(top_from, top_to, crop_param={"axis": first, "offset": offset.astype(int).tolist()})
    return top
