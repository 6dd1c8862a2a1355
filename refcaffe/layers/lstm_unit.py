"""LSTMUnit: one time step of an LSTM, from the gates' inputs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.sums import in_double
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_check = Checker("lstm_unit_layer.cpp")


@register("LSTMUnit")
class LSTMUnit(Layer):
    """Bottoms: cell (1, N, D), gate inputs (1, N, 4D) in the order i, f, o, g, and continuation (1, N).

    Tops: cell and hidden state (1, N, D). Continuation multiplies the forget gate, in backward as if the
    product were the sigmoid's own value; it gets no gradient.
    """

    exact_bottoms = 3
    exact_tops = 2

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.activations = Blob(dtype=self.dtype)  # on a device

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 2

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        streams = bottom[0].dim(1)
        for i, blob in enumerate(bottom):
            axes = 2 if i == 2 else 3
            _check.eq(axes, blob.num_axes, f"{axes} == bottom[i]->num_axes()")
            _check.eq(1, blob.dim(0), "1 == bottom[i]->shape(0)")
            _check.eq(streams, blob.dim(1), "num_instances == bottom[i]->shape(1)")
        self.hidden = bottom[0].dim(2)
        _check.eq(4 * self.hidden, bottom[1].dim(2), "4 * hidden_dim_ == bottom[1]->shape(2)")
        top[0].reshape_like(bottom[0])
        top[1].reshape_like(bottom[0])
        self.activations.reshape_like(bottom[1])

    def _gates(self, xp: Any, x: Any, cont: Any) -> tuple[Any, Any, Any, Any]:
        """The values of i, f, o and g, each (N, D)."""
        parts = x.reshape(-1, 4, self.hidden)
        cont = cont.reshape(-1, 1)
        # Where cont is 0, even a NaN is forgotten.
        f = xp.where(cont == 0, 0, cont * _sigmoid(xp, parts[:, 1]))
        return _sigmoid(xp, parts[:, 0]), f, _sigmoid(xp, parts[:, 2]), _tanh(xp, parts[:, 3])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        before, x, cont = side.data(bottom[0])[0], side.data(bottom[1]), side.data(bottom[2])
        c, h = side.mutable_data(top[0])[0], side.mutable_data(top[1])[0]
        if side.gpu:
            i, f, o, g = self._activate(side, x)
            xp.add(cont.reshape(-1, 1) * f * before, i * g, out=c)
            xp.multiply(o, _device_tanh(xp, c), out=h)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            i, f, o, g = self._gates(xp, x, cont)
            xp.multiply(f, before, out=c)
            c += i * g
            xp.multiply(o, _tanh(xp, c), out=h)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        _check(not propagate_down[2], "!propagate_down[2]", "Cannot backpropagate to sequence indicators.")
        if not propagate_down[0] and not propagate_down[1]:
            return
        xp = side.xp
        before, x, cont = side.data(bottom[0])[0], side.data(bottom[1]), side.data(bottom[2])
        c = side.data(top[0])[0]
        side.data(top[1])  # upstream asks for it too
        dc, dh = side.diff(top[0])[0], side.diff(top[1])[0]
        dbefore = side.mutable_diff(bottom[0])[0]
        dx = side.mutable_diff(bottom[1]).reshape(-1, 4, self.hidden)
        if side.gpu:
            self._device_backward(side, (before, cont.reshape(-1, 1), c), (dc, dh), dbefore, dx)
            return
        with np.errstate(over="ignore", invalid="ignore"):
            i, f, o, g = self._gates(xp, x, cont)
            tanh_c = _tanh(xp, c)
            dcell = dc + dh * o * (1 - tanh_c * tanh_c)
            dx[:, 0] = dcell * g * i * (1 - i)
            dx[:, 1] = dcell * before * f * (1 - f)
            dx[:, 2] = dh * tanh_c * o * (1 - o)
            dx[:, 3] = dcell * i * (1 - g * g)
            xp.multiply(dcell, f, out=dbefore)

    # --- on a device: all in the layer's own type, and the activations are kept for backward

    def _activate(self, side: Side, x: Any) -> Any:
        """i, f, o and g, each (N, D), without continuation."""
        xp, parts = side.xp, x.reshape(-1, 4, self.hidden)
        kept = side.mutable_data(self.activations).reshape(parts.shape)
        kept[:, :3] = _device_sigmoid(xp, parts[:, :3])
        kept[:, 3] = _device_tanh(xp, parts[:, 3])
        return kept.swapaxes(0, 1)

    def _device_backward(self, side: Side, given: tuple[Any, Any, Any], diffs: Any, dbefore: Any, dx: Any) -> None:
        (before, cont, c), (dc, dh) = given, diffs
        i, f, o, g = side.data(self.activations).reshape(dx.shape).swapaxes(0, 1)
        tanh_c = _device_tanh(side.xp, c)
        dcell = dc + dh * o * (1 - tanh_c * tanh_c)
        side.xp.multiply(cont * dcell, f, out=dbefore)
        dx[:, 0] = dcell * g * i * (1 - i)
        dx[:, 1] = cont * dcell * before * f * (1 - f)
        dx[:, 2] = dh * tanh_c * o * (1 - o)
        dx[:, 3] = dcell * i * (1 - g * g)


def _device_sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x, **({"out": xp.empty_like(x)} | in_double(xp))))


def _device_tanh(xp: Any, x: Any) -> Any:
    return 2 * _device_sigmoid(xp, 2 * x) - 1


def _sigmoid(xp: Any, x: Any) -> Any:
    """Of the type of ``x``; the exponential is of that type too, all else is double."""
    return (1 / (1 + xp.exp(-x).astype(np.float64))).astype(x.dtype)


def _tanh(xp: Any, x: Any) -> Any:
    """Of the type of ``x``, but all double inside."""
    return (2 * _sigmoid(xp, 2 * x.astype(np.float64)) - 1).astype(x.dtype)
