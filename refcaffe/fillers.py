"""Fillers: the first values of parameters, drawn in C order from a random stream.

Checks come in upstream's order: that of ``sparse`` only after the blob was filled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.checks import Checker
from refcaffe.rng import Stream

if TYPE_CHECKING:
    from refcaffe.blob import Blob
    from refcaffe.proto.caffe_pb2 import FillerParameter

Filler = Callable[["Blob", "FillerParameter", Stream], None]

_check = Checker("filler.hpp")

_FAN_OUT, _AVERAGE = 1, 2  # FillerParameter.VarianceNorm


def _flat(blob: Blob) -> NDArray[Any]:
    flat: NDArray[Any] = blob.mutable_cpu_data().reshape(-1)
    return flat


def _check_not_sparse(param: FillerParameter) -> None:
    text = "Sparsity not supported by this Filler."
    _check.eq(param.sparse, -1, "this->filler_param_.sparse() == -1", text)


def _constant(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    data = _flat(blob)
    _check(blob.count, "count")
    data[:] = param.value
    _check_not_sparse(param)


def _uniform(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    _check(blob.count, "blob->count()")
    stream.uniform(blob.count, param.min, param.max, _flat(blob))
    _check_not_sparse(param)


def _gaussian(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    """``sparse`` is how many of the shape[0] values that belong to one input stay, on average; -1: all."""
    data = _flat(blob)
    _check(blob.count, "blob->count()")
    stream.gaussian(blob.count, param.mean, param.std, data)
    _check.ge(param.sparse, -1, "sparse >= -1")
    if param.sparse >= 0:
        _check.ge(len(blob.shape), 1, "blob->num_axes() >= 1")
        real = data.dtype.type
        real = data.dtype.type
        mask = np.empty(blob.count, np.int32)
        stream.bernoulli(blob.count, real(param.sparse) / real(blob.shape[0]), mask)
        with np.errstate(invalid="ignore"):
            data *= mask.astype(real)  # a product, since -x becomes -0


def _positive_unitball(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    """Positive values; along axis 0 each slice's sum is 1."""
    data = _flat(blob)
    stream.uniform(blob.count, 0, 1, data)
    slices = blob.dim(0)
    size = blob.count // slices if slices else 0
    _check(size, "dim")
    rows = data.reshape(slices, size)
    with np.errstate(invalid="ignore"):
        rows /= np.cumsum(rows, axis=1)[:, -1:]  # added one by one; np.sum adds in pairs
    _check_not_sparse(param)


def _fan(blob: Blob, param: FillerParameter, real: Any) -> Any:
    """What the variance is divided by: inputs, outputs or their mean, as the shape alone tells."""
    fan_in = blob.count // blob.dim(0)
    fan_out = blob.count // blob.dim(1) if len(blob.shape) > 1 else blob.count
    if param.variance_norm == _AVERAGE:
        return real(fan_in + fan_out) / real(2)
    return real(fan_out if param.variance_norm == _FAN_OUT else fan_in)


def _xavier(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    _check(blob.count, "blob->count()")
    real = blob.dtype.type
    scale = np.sqrt(real(3) / _fan(blob, param, real))
    stream.uniform(blob.count, -scale, scale, _flat(blob))
    _check_not_sparse(param)


def _msra(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    _check(blob.count, "blob->count()")
    real = blob.dtype.type
    deviation = np.sqrt(real(2) / _fan(blob, param, real))
    stream.gaussian(blob.count, 0, deviation, _flat(blob))
    _check_not_sparse(param)


def _bilinear(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    """The weights with which a deconvolution interpolates, in every channel; the kernel is square."""
    _check.eq(len(blob.shape), 4, "blob->num_axes() == 4", "Blob must be 4 dim.")
    height, width = blob.shape[2:]
    _check.eq(width, height, "blob->width() == blob->height()", "Filter must be square")
    data = blob.mutable_cpu_data()
    if blob.count:
        real = data.dtype.type
        real = data.dtype.type
        factor = (width + 1) // 2
        center = real((width - 1) / (2.0 * factor))
        tent = real(1) - np.abs(np.arange(width, dtype=real) / real(factor) - center)
        data[:] = tent * tent[:, np.newaxis]
    _check_not_sparse(param)


_FILLERS: dict[str, Filler] = {
    "constant": _constant,
    "gaussian": _gaussian,
    "positive_unitball": _positive_unitball,
    "uniform": _uniform,
    "xavier": _xavier,
    "msra": _msra,
    "bilinear": _bilinear,
}


def get_filler(param: FillerParameter) -> Filler:
    """The filler that ``param.type`` names, called with (blob, param, stream). CheckError if unknown."""
    _check(param.type in _FILLERS, "false", f"Unknown filler name: {param.type}")
    return _FILLERS[param.type]


def fill(blob: Blob, param: FillerParameter, stream: Stream) -> None:
    """Fill the blob's data (float32 or float64: the type of all arithmetic), on the host, as ``param`` says.

    Raises CheckError with upstream's message for what upstream refuses.
    """
    get_filler(param)(blob, param, stream)
