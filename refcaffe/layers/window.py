"""The window of Convolution, Deconvolution and Im2col, read from their parameters with upstream's checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.axes import to_int
from refcaffe.side import Side

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import ConvolutionParameter


@dataclass(frozen=True)
class Window:
    """Kernel size, stride, padding and dilation along each spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    dilation: tuple[int, ...]

    @property
    def is_a_point(self) -> bool:
        """Whether the window sees each pixel once and alone, so that columns would be the image itself."""
        return all((k, s, p) == (1, 1, 0) for k, s, p in zip(self.kernel, self.stride, self.pad, strict=True))

    @property
    def extent(self) -> tuple[int, ...]:
        """The kernel's length with the gaps that dilation makes."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    def positions(self, image: Sequence[int]) -> tuple[int, ...]:
        """How many positions the window has on an image, along each axis; may be negative."""
        room = (n + 2 * p - e for n, p, e in zip(image, self.pad, self.extent, strict=True))
        # Rounded toward zero: a window that is too long by less than the stride has one position.
        return tuple((r // s if r >= 0 else -(-r // s)) + 1 for r, s in zip(room, self.stride, strict=True))

    def covered(self, positions: Sequence[int]) -> tuple[int, ...]:
        """The smallest image that has so many positions."""
        sizes = zip(positions, self.stride, self.extent, self.pad, strict=True)
        return tuple(s * (n - 1) + e - 2 * p for n, s, e, p in sizes)


class DeviceTables:
    """What upstream's N-D kernels read on a device: the window, brought there once, and shapes, anew whenever set."""

    def __init__(self, window: Window) -> None:
        self._blobs = [Blob(dtype=np.int32) for _ in range(4)]
        for blob, values in zip(self._blobs, (window.kernel, window.stride, window.pad, window.dilation), strict=True):
            blob.reshape(len(values))
            blob.mutable_cpu_data()[...] = values

    def bring(self, side: Side, *shaped: Blob) -> None:
        """Bring the window, and the shapes of some blobs."""
        for blob in self._blobs:
            side.data(blob)
        for blob in shaped:
            blob.gpu_shape()


def device_tables(window: Window, force_nd: bool) -> DeviceTables | None:
    """The tables of a window for which upstream takes its N-D kernels: any but one over two axes, unless forced."""
    axes = len(window.kernel)
    return DeviceTables(window) if axes and (force_nd or axes != 2) else None


def read_window(param: ConvolutionParameter, axes: int, check: Checker, end: str) -> Window:
    """The window over ``axes`` spatial axes. ``check`` complains; ``end`` is how its texts end."""
    kernel = _per_axis(param, "kernel", "kernel_size", None, axes, check, end)
    for k in kernel:
        check.gt(k, 0, "kernel_shape_data[i] > 0", "Filter dimensions must be nonzero.")
    stride = _per_axis(param, "stride", "stride", 1, axes, check, end)
    for s in stride:  # upstream divides by a stride_h or stride_w of 0, and dies
        check.gt(s, 0, "stride_data[i] > 0", "Stride dimensions must be nonzero.")
    pad = _per_axis(param, "pad", "pad", 0, axes, check, end)
    dilation = _per_axis(param, "dilation", "dilation", 1, axes, check, ").")
    return Window(kernel, stride, pad, dilation)


def _per_axis(
    param: ConvolutionParameter,
    name: str,
    field: str,
    default: int | None,
    axes: int,
    check: Checker,
    end: str,
) -> tuple[int, ...]:
    """One number per axis, from ``name``_h and ``name``_w or from ``field``.

    ``field`` holds one for all axes, or one for each, or, if there is a default, none.
    """
    values = list(getattr(param, field))
    height, width = f"{name}_h", f"{name}_w"
    if name != "dilation" and (param.HasField(height) or param.HasField(width)):
        text = f"{height} & {width} can only be used for 2D convolution."
        check.eq(axes, 2, "num_spatial_axes_ == 2", text)
        text = f"Either {field} or {height}/w should be specified; not both."
        check.eq(0, len(values), f"0 == conv_param.{field}_size()", text)
        return (to_int(getattr(param, height)), to_int(getattr(param, width)))
    times = f"num_{name}_dims"
    expression = f"{times} == 1 || {times} == num_spatial_axes_"
    if default is not None:
        expression = f"{times} == 0 || {expression}"
        values = values or [default]
    text = (
        f"{field} must be specified once, or once per spatial dimension "
        f"({field} specified {len(values)} times; {axes} spatial dims{end}"
    )
    check(len(values) in (1, axes), expression, text)
    return tuple(to_int(value) for value in (values * axes if len(values) == 1 else values))
