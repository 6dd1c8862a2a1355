"""LRN: each element divided by a power of the mean square around it, across channels or within one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.kernels.lrn import lrn_backward, lrn_device_backward, lrn_device_scale, lrn_forward
from refcaffe.layers.base import Blobs, Layer, make, register
from refcaffe.layers.engine import check_engine
from refcaffe.layers.sums import check_size, in_double
from refcaffe.proto.caffe_pb2 import EltwiseParameter, LayerParameter, LRNParameter, PoolingParameter
from refcaffe.side import Side

_check = Checker("lrn_layer.cpp")

Chain = list[tuple[Layer, Blobs, Blobs]]


@register("LRN")
class LRN(Layer):
    """Within a channel it is a chain of layers: Split, Power, Pooling, Power, Eltwise, without ``k``."""

    exact_bottoms = 1
    exact_tops = 1

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        check_engine(param, param.lrn_param.engine)
        super().__init__(param, dtype)
        self.within = param.lrn_param.norm_region == LRNParameter.WITHIN_CHANNEL
        self.scale = Blob(dtype=self.dtype)  # what a power is taken of; kept for backward

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.lrn_param
        real: Any = self.dtype.type
        self.size = param.local_size
        _check.eq(self.size % 2, 1, "size_ % 2 == 1", "LRN only supports odd values for local_size")
        self.alpha, self.beta, self.k = real(param.alpha), real(param.beta), real(param.k)
        if self.within:
            self._make_chain()
            for layer, bottoms, tops in self._chain(bottom, top):
                layer.set_up(bottoms, tops)

    def _make_chain(self) -> None:
        names = ("Split", "Power", "Pooling", "Power", "Eltwise")
        params = [LayerParameter(type=name) for name in names]
        _, square, pool, power, product = params
        square.power_param.power = 2
        pool.pooling_param.pool = PoolingParameter.AVE
        pool.pooling_param.pad = (self.size - 1) // 2
        pool.pooling_param.kernel_size = self.size
        power.power_param.power = -self.beta
        power.power_param.scale = self.alpha
        power.power_param.shift = 1
        product.eltwise_param.operation = EltwiseParameter.PROD
        self.links = [make(param, self.dtype) for param in params]
        self.between = [Blob(dtype=self.dtype) for _ in names]

    def _chain(self, bottom: Blobs, top: Blobs) -> Chain:
        """The layers of the chain with their bottoms and tops."""
        x, same_x, squares, means, powers = self.between
        bottoms: list[Blobs] = [bottom, [same_x], [squares], [means], [x, powers]]
        tops: list[Blobs] = [[x, same_x], [squares], [means], [powers], top]
        return list(zip(self.links, bottoms, tops, strict=True))

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        text = "Input must have 4 axes, corresponding to (num, channels, height, width)"
        _check.eq(4, bottom[0].num_axes, "4 == bottom[0]->num_axes()", text)
        if self.within:
            for layer, bottoms, tops in self._chain(bottom, top):
                layer.reshape(bottoms, tops)
        else:
            top[0].reshape_like(bottom[0])
            self.scale.reshape_like(bottom[0])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        if self.within:
            for layer, bottoms, tops in self._chain(bottom, top):
                layer.forward(bottoms, tops)
            return
        x, y, scale = side.data(bottom[0]), side.mutable_data(top[0]), side.mutable_data(self.scale)
        check_size(side, x.size)
        alpha = self.alpha / self.dtype.type(self.size)
        if side.gpu:
            lrn_device_scale(x, self.size, self.k, alpha, scale)
            side.xp.power(scale, -self.beta, out=y, **in_double(side.xp))
            y *= x
        else:
            lrn_forward(x, self.size, self.k, alpha, -self.beta, scale, y)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.within:
            self._backward_within(top, propagate_down, bottom)
            return
        dy, y, x = side.diff(top[0]), side.data(top[0]), side.data(bottom[0])
        scale, dx = side.data(self.scale), side.mutable_diff(bottom[0])
        check_size(side, x.size)
        factor = self.dtype.type(2.0 * float(self.alpha) * float(self.beta) / self.size)
        if side.gpu:
            side.xp.power(scale, -self.beta, out=dx, **in_double(side.xp))
            lrn_device_backward(x, y, dy, scale, dx, self.size, factor, dx)
        else:
            lrn_backward(x, y, dy, scale, self.size, -self.beta, factor, dx)

    def _backward_within(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        for layer, bottoms, tops in reversed(self._chain(bottom, top)):
            layer.backward(tops, [True] * len(bottoms), bottoms)
