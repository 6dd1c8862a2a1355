"""Eltwise: the sum, product or maximum of several blobs of one shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.layers.blocks import blocks, each_block
from refcaffe.layers.sums import add_scaled, check_size, choose, keep, scale
from refcaffe.proto.caffe_pb2 import EltwiseParameter
from refcaffe.side import Side

_check = Checker("eltwise_layer.cpp")

PROD, SUM, MAX = EltwiseParameter.PROD, EltwiseParameter.SUM, EltwiseParameter.MAX


@register("Eltwise")
class Eltwise(Layer):
    """SUM takes coefficients. MAX: of the first two, if equal, the second wins; after that the earlier,

    on a device the later.
    """

    min_bottoms = 2
    exact_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.eltwise_param
        size = "this->layer_param().eltwise_param().coeff_size()"
        expression = f"{size} == 0 || {size} == bottom.size()"
        text = "Eltwise Layer takes one coefficient per bottom blob."
        _check(len(param.coeff) in (0, len(bottom)), expression, text)
        operation = "this->layer_param().eltwise_param().operation()"
        expression = f"!({operation} == EltwiseParameter_EltwiseOp_PROD && {size})"
        text = "Eltwise layer only takes coefficients for summation."
        _check(not (param.operation == PROD and len(param.coeff)), expression, text)
        self.operation: int = param.operation
        self.coeffs = [self.dtype.type(c) for c in param.coeff or [1] * len(bottom)]
        self.max_index = Blob(dtype=np.int32)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        for i, blob in enumerate(bottom):
            text = f"bottom[0]: {bottom[0].shape_string}, bottom[{i}]: {blob.shape_string}"
            _check(blob.shape == bottom[0].shape, "bottom[0]->shape() == bottom[i]->shape()", text)
        top[0].reshape_like(bottom[0])
        if self.operation == MAX:
            self.max_index.reshape(bottom[0].shape)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        xp = side.xp
        y = side.mutable_data(top[0])
        if self.operation == PROD:
            check_size(side, y.size)
            b, a = side.data(bottom[1]), side.data(bottom[0])
            xp.multiply(a, b, out=y)
            for blob in bottom[2:]:
                y *= side.data(blob)
        elif self.operation == SUM:
            each_block(side, self._sum, y, *map(side.data, bottom))
        else:
            index = side.mutable_data(self.max_index)
            for y_part, i_part, a, b, *xs in blocks(side, y, index, *map(side.data, bottom)):
                first = a > b
                xp.logical_not(first, out=i_part)
                choose(first, a, b, y_part)
                for i, x in enumerate(xs, 2):
                    # On a device a value as high as the ones before it wins, and so does one that is compared to NaN.
                    higher = ~(y_part > x) if side.gpu else x > y_part
                    choose(higher, x, y_part, y_part)
                    xp.copyto(i_part, i, where=higher)

    def _sum(self, y: Any, *xs: Any) -> None:
        y.fill(0)
        for coeff, x in zip(self.coeffs, xs, strict=True):
            add_scaled(y, coeff, x)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        y, dy = side.data(top[0]), side.diff(top[0])
        for i, blob in enumerate(bottom):
            if not propagate_down[i]:
                continue
            x, dx = side.data(blob), side.mutable_diff(blob)
            if self.operation == PROD:
                check_size(side, dx.size)
                if self.param.eltwise_param.stable_prod_grad:
                    first, *rest = (side.data(other) for j, other in enumerate(bottom) if j != i)
                    side.copy(dx, first)
                    for other in rest:
                        dx *= other
                else:
                    side.xp.divide(y, x, out=dx)
                dx *= dy
            elif self.operation == SUM and self.coeffs[i] == 1:
                side.copy(dx, dy)
            elif self.operation == SUM:
                side.xp.copyto(dx, dy)
                scale(dx, self.coeffs[i])
            else:
                for index, dy_part, dx_part in blocks(side, side.data(self.max_index), dy, dx):
                    side.xp.add(keep(dy_part, index == i), 0, out=dx_part)  # -0 comes out as 0
