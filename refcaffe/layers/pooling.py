"""Pooling: maximum or average over windows of each channel's plane."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.device import runtime
from refcaffe.kernels import pooling as kernels
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.engine import check_engine
from refcaffe.proto import caffe_pb2
from refcaffe.proto.caffe_pb2 import LayerParameter, PoolingParameter
from refcaffe.side import Side

_check = Checker("pooling_layer.cpp")

Pair = tuple[int, int]  # along height and width


@register("Pooling")
class Pooling(Layer):
    """MAX gives the places of the maxima as an optional second top. STOCHASTIC is not there on the host."""

    exact_bottoms = 1
    min_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.pooling_param.engine)
        super().__init__(param, dtype)
        self.pool = param.pooling_param.pool
        self.max_tops = 2 if self.pool == PoolingParameter.MAX else 1
        self.places = Blob(dtype=np.int32)  # of the maxima, where no second top takes them
        self.chosen = Blob(dtype=self.dtype)  # by STOCHASTIC

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.pooling_param
        _check_fields(param)
        if param.global_pooling:
            self.kernel = (bottom[0].height, bottom[0].width)
        else:
            self.kernel = _pair(param, "kernel", "kernel_size")
        for name, size in zip("hw", self.kernel, strict=True):
            _check.gt(size, 0, f"kernel_{name}_ > 0", "Filter dimensions cannot be zero.")
        self.pad = pad = _pair(param, "pad", "pad")
        self.stride = _pair(param, "stride", "stride")
        if param.global_pooling:
            expression = "pad_h_ == 0 && pad_w_ == 0 && stride_h_ == 1 && stride_w_ == 1"
            text = "With Global_pooling: true; only pad = 0 and stride = 1"
            _check((*pad, *self.stride) == (0, 0, 1, 1), expression, text)
        if any(pad):
            pool = "this->layer_param_.pooling_param().pool() == PoolingParameter_PoolMethod_"
            text = "Padding implemented only for average and max pooling."
            _check(self.pool != PoolingParameter.STOCHASTIC, f"{pool}AVE || {pool}MAX", text)
            for name, p, k in zip("hw", pad, self.kernel, strict=True):
                _check.lt(p, k, f"pad_{name}_ < kernel_{name}_")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        text = "Input must have 4 axes, corresponding to (num, channels, height, width)"
        _check.eq(4, bottom[0].num_axes, "4 == bottom[0]->num_axes()", text)
        images, channels, *plane = bottom[0].shape
        size = (plane[0], plane[1])
        if self.param.pooling_param.global_pooling:
            self.kernel = size
        down = self.param.pooling_param.round_mode == PoolingParameter.FLOOR
        count = _count(size, self.kernel, self.stride, self.pad, down)
        for blob in top:
            blob.reshape(images, channels, *count)
        if self.pool == PoolingParameter.MAX and len(top) == 1:
            self.places.reshape(images, channels, *count)
        if self.pool == PoolingParameter.STOCHASTIC:
            self.chosen.reshape(images, channels, *count)
        # A single window does not move, whatever the stride says; several move forward.
        stride = tuple(s if n > 1 else max(k, 1) for s, n, k in zip(self.stride, count, self.kernel, strict=True))
        for name, step in zip("hw", stride, strict=True):
            _check.gt(step, 0, f"stride_{name}_ > 0", "Windows that move backward are not supported.")
        self.windows = kernels.windows_of(size, count, self.kernel, stride, self.pad, self.dtype)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, y = side.data(bottom[0]), side.mutable_data(top[0])
        if self.pool == PoolingParameter.MAX:
            mask = side.mutable_data(top[1] if len(top) > 1 else self.places)
            kernels.max_forward(side, self.windows, x, y, mask)
        elif self.pool == PoolingParameter.AVE:
            kernels.average_forward(side, self.windows, x, y)
        elif not side.gpu:
            _check.fatal("Not Implemented Yet")
        elif self.phase == caffe_pb2.TRAIN:
            chosen = side.mutable_data(self.chosen)
            runtime().generator().uniform(chosen.reshape(-1))
            kernels.stochastic_train(side, self.windows, x, chosen, y)
        else:
            kernels.stochastic_test(side, self.windows, x, y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        dy, dx = side.diff(top[0]), side.mutable_diff(bottom[0])
        if self.pool == PoolingParameter.MAX:
            mask = side.data(top[1] if len(top) > 1 else self.places)
            kernels.max_backward(side, self.windows, dy, mask, dx)
        elif self.pool == PoolingParameter.AVE:
            kernels.average_backward(side, self.windows, dy, dx)
        elif side.gpu:
            kernels.stochastic_backward(side, self.windows, dy, side.data(self.chosen), dx)
        else:
            _check.fatal("Not Implemented Yet")


@lru_cache(maxsize=256)
def _count(size: Pair, kernel: Pair, stride: Pair, pad: Pair, down: bool) -> Pair:
    """How many windows there are along each axis; a step that is left over counts, unless rounded ``down``."""
    counts = []
    for n, k, s, p in zip(size, kernel, stride, pad, strict=True):
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = (np.floor if down else np.ceil)(np.float32(n + 2 * p - k) / np.float32(s))
        count = (int(steps) if np.isfinite(steps) else -(2**31)) + 1
        if any(pad) and (count - 1) * s >= n + p:
            count -= 1  # the last window would see padding alone
        counts.append(count)
    return counts[0], counts[1]


def _pair(param: PoolingParameter, name: str, field: str) -> Pair:
    """Height and width of ``name``_h and ``name``_w, or of ``field`` if they are not there."""
    fields = (f"{name}_h", f"{name}_w")
    if param.HasField(field) or not param.HasField(fields[0]):
        fields = (field, field)
    return to_int(getattr(param, fields[0])), to_int(getattr(param, fields[1]))


def _check_fields(param: PoolingParameter) -> None:
    """Refuse sizes that are given twice or half."""
    size, height, width = map(param.HasField, ("kernel_size", "kernel_h", "kernel_w"))
    has_size, has_height, has_width = (f"pool_param.has_kernel_{end}()" for end in ("size", "h", "w"))
    if param.global_pooling:
        text = "With Global_pooling: true Filter size cannot specified"
        _check(not (size or height or width), f"!({has_size} || {has_height} || {has_width})", text)
    else:
        text = "Filter size is kernel_size OR kernel_h and kernel_w; not both"
        _check(size != (height and width), f"!{has_size} != !({has_height} && {has_width})", text)
    for name, title in (("pad", "pad"), ("stride", "Stride")):
        size, height, width = map(param.HasField, (name, f"{name}_h", f"{name}_w"))
        has = f"pool_param.has_{name}"
        expression = f"(!{has}() && {has}_h() && {has}_w()) || (!{has}_h() && !{has}_w())"
        holds = (not size and height and width) or not (height or width)
        _check(holds, expression, f"{title} is {name} OR {name}_h and {name}_w are required.")
