"""Scale: the bottom times a blob, learned or given, along some of its axes; plus a Bias if asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import fill
from refcaffe.kernels import planes
from refcaffe.layers.base import Blobs, Layer, create, register
from refcaffe.layers.broadcast import Along, fill_ones, plane_sums
from refcaffe.layers.sums import check_size
from refcaffe.proto.caffe_pb2 import FillerParameter, LayerParameter
from refcaffe.side import HOST, Side

_along = Along("scale", "axis_", Checker("scale_layer.cpp"))


@register("Scale")
class Scale(Layer):
    """The second bottom is the scale, if there is one. The bias, an inner layer's, is the last parameter."""

    min_bottoms = 1
    max_bottoms = 2
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.ones = Blob(dtype=self.dtype)
        self.kept = Blob(dtype=self.dtype)  # in place: the bottom's data, for backward
        self.bias: Any = None  # a Bias

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.scale_param
        if len(bottom) == 1 and not self.blobs:
            self.blobs = [Blob(_along.parameter_shape(bottom[0], param.axis, param.num_axes), self.dtype)]
            filler = param.filler if param.HasField("filler") else FillerParameter(type="constant", value=1)
            fill(self.blobs[0], filler, context.current().stream)
        if param.bias_term:
            self._set_up_bias(bottom, top)
        self.param_propagate_down = [True] * len(self.blobs)

    def _set_up_bias(self, bottom: Blobs, top: Blobs) -> None:
        """The inner layer is made from this one's definition, ``blobs`` and loss weight included."""
        param = self.param.scale_param
        inner = LayerParameter()
        inner.CopyFrom(self.param)
        inner.type = "Bias"
        inner.bias_param.axis = param.axis
        inner.bias_param.num_axes = bottom[1].num_axes if len(bottom) > 1 else param.num_axes
        inner.bias_param.filler.CopyFrom(param.bias_filler)
        self.bias = create(inner, self.dtype)
        self.bias.set_up(bottom[:1], top)
        if len(self.blobs) + len(bottom) < 3:
            self.blobs.append(self.bias.blobs[0])
        else:
            self.bias.blobs[0] = self.blobs[-1]

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self.planes = _along.planes(bottom[0], self._scale(bottom), self.param.scale_param.axis)
        (self.kept if bottom[0] is top[0] else top[0]).reshape_like(bottom[0])
        fill_ones(self.ones, max(self.planes[0], self.planes[2]))
        if self.bias is not None:
            self.bias.reshape(top, top)

    def _scale(self, bottom: Blobs) -> Blob:
        return bottom[1] if len(bottom) > 1 else self.blobs[0]

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x, in_place = side.data(bottom[0]).reshape(self.planes), bottom[0] is top[0]
        kept = side.mutable_data(self.kept).reshape(self.planes) if in_place else None
        if kept is not None and side.gpu:
            side.copy(kept, x)
        y, scale = side.mutable_data(top[0]).reshape(self.planes), side.data(self._scale(bottom))
        if side.gpu:
            self._multiply(side, x, scale, y)
            if self.bias is not None:
                y[...] += side.data(self.blobs[-1]).reshape(-1, 1)
            return
        at_once = self.bias is not None and self.bias.planes == self.planes
        values = [scale.reshape(-1), *([side.data(self.blobs[-1]).reshape(-1)] if at_once else [])]

        def formula(y: Any, *rest: Any) -> None:
            if kept is not None:
                np.copyto(rest[0], y)
            scale, *bias = rest[-len(values) :]
            planes.scale(y, scale)
            if bias:
                planes.shift(y, *bias)

        planes.each_plane(formula, x, y, () if kept is None else (kept,), values)
        if self.bias is not None and not at_once:
            self.bias.forward(top, top)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.bias is not None and self.param_propagate_down[-1]:
            self.bias.backward(top, [False], top)
        learned = len(bottom) == 1
        if self.wants_param_diff(0) if learned else propagate_down[1]:
            self._scale_diff(side, bottom, top, learned)
        if propagate_down[0]:
            dy, scale = side.diff(top[0]), side.data(self._scale(bottom))
            self._multiply(side, dy, scale, side.mutable_diff(bottom[0]))

    def _scale_diff(self, side: Side, bottom: Blobs, top: Blobs, learned: bool) -> None:
        """The products go where they are wanted, else into the bottom's diff, or ``kept``, to be summed."""
        scale, in_place = self._scale(bottom), bottom[0] is top[0]
        dy, x = side.diff(top[0]), side.data(self.kept if in_place else bottom[0])
        check_size(side, dy.size)
        if scale.count == bottom[0].count:
            side.xp.multiply(dy, x, out=side.mutable_diff(scale).reshape(dy.shape))
            return
        products = side.mutable_data(self.kept) if in_place else side.mutable_diff(bottom[0])
        outer, size, inner = self.planes
        ones = side.data(self.ones)
        dy, x, products = (array.reshape(self.planes) for array in (dy, x, products))
        if side.gpu or inner == 1:
            side.xp.multiply(dy, x, out=products)
            sums = plane_sums(side, products, ones)
        elif in_place:  # products overwrite x
            sums = planes.sums_of(planes.multiply, (dy,), (), ones[:inner], into=products)
        else:
            sums = planes.sums_of(planes.product, (dy, x), (), ones[:inner], into=products)
        total = sums[0] if outer == 1 else side.xp.matmul(ones[:outer], sums)
        if size == 1:
            side, total = HOST, side.host(total)
        diff = side.mutable_diff(scale).reshape(-1)
        if learned and not (outer == 1 and size > 1):
            diff += total
        else:
            diff[:] = total

    def _multiply(self, side: Side, x: Any, scale: Any, out: Any) -> None:
        """On the host as BLAS scales each plane: by 0 everything becomes +0, NaN and infinity too."""
        x, out = x.reshape(self.planes), out.reshape(self.planes)
        if side.gpu:
            side.xp.multiply(x, scale.reshape(-1, 1), out=out)
        else:
            planes.each_plane(planes.scale, x, out, (), (scale.reshape(-1),))
