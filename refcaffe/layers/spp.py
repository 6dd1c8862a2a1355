"""SPP: pooling into 1, 4, 16 … bins of the whole plane, all in one row of numbers."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, make, register
from refcaffe.proto.caffe_pb2 import LayerParameter
from refcaffe.side import Side

_check = Checker("spp_layer.cpp")


@register("SPP")
class SPP(Layer):
    """A Split, and for each level a Pooling and a Flatten, then a Concat; one level is its Pooling alone."""

    exact_bottoms = 1
    exact_tops = 1
    forward_on_gpu = False
    backward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        for name, size in (("h", bottom[0].height), ("w", bottom[0].width)):
            _check.gt(size, 0, f"bottom_{name}_ > 0", "Input dimensions cannot be zero.")
        # A level with more bins than pixels is refused, and the last of so many has 2**31.
        self.levels = min(self.param.spp_param.pyramid_height, 32)
        self.pooled_shape: tuple[int, ...] = ()  # the bottom's that the poolings are made for
        if self.levels == 1:
            self._make_pools(bottom, top)
            return
        self.parts, self.pooled, self.flat = (self._new_blobs() for _ in range(3))
        self.split = make(LayerParameter(type="Split"), self.dtype)
        self.split.set_up(bottom, self.parts)
        self._make_pools(bottom, top)
        self.flattens = [make(LayerParameter(type="Flatten"), self.dtype) for _ in range(self.levels)]
        for flatten, source, target in zip(self.flattens, self.pooled, self.flat, strict=True):
            flatten.set_up([source], [target])
        self.concat = make(LayerParameter(type="Concat"), self.dtype)
        self.concat.set_up(self.flat, top)

    def _new_blobs(self) -> list[Blob]:
        return [Blob(dtype=self.dtype) for _ in range(self.levels)]

    def _make_pools(self, bottom: Blobs, top: Blobs) -> None:
        size = (bottom[0].height, bottom[0].width)
        self.pools = []
        for level, (source, target) in enumerate(self._pool_ends(bottom, top)):
            pool = make(self._pool_param(2**level, size), self.dtype)
            pool.set_up(source, target)
            self.pools.append(pool)

    def _pool_ends(self, bottom: Blobs, top: Blobs) -> list[tuple[Blobs, Blobs]]:
        """The bottoms and tops of each level's pooling."""
        if self.levels == 1:
            return [(bottom, top)]
        return [([source], [target]) for source, target in zip(self.parts, self.pooled, strict=True)]

    def _pool_param(self, bins: int, size: tuple[int, int]) -> LayerParameter:
        """The smallest windows, side by side, of which ``bins`` cover the plane, padded all around."""
        param = LayerParameter(type="Pooling")
        pooling = param.pooling_param
        (pooling.kernel_h, pooling.kernel_w) = kernel = (-(-size[0] // bins), -(-size[1] // bins))
        pooling.stride_h, pooling.stride_w = kernel
        pooling.pad_h, pooling.pad_w = ((k * bins - n + 1) // 2 for k, n in zip(kernel, size, strict=True))
        pooling.pool = self.param.spp_param.pool  # the two enums have the same values
        return param

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        text = "Input must have 4 axes, corresponding to (num, channels, height, width)"
        _check.eq(4, bottom[0].num_axes, "4 == bottom[0]->num_axes()", text)
        if self.pooled_shape == bottom[0].shape:
            return
        self.pooled_shape = bottom[0].shape
        if self.levels == 1:
            self._make_pools(bottom, top)
            return
        self.split.reshape(bottom, self.parts)
        self._make_pools(bottom, top)
        for flatten, source, target in zip(self.flattens, self.pooled, self.flat, strict=True):
            flatten.reshape([source], [target])
        self.concat.reshape(self.flat, top)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        if self.levels == 1:
            self.pools[0].forward(bottom, top)
            return
        self.split.forward(bottom, self.parts)
        for pool, flatten, part, pooled, flat in self._levels():
            pool.forward([part], [pooled])
            flatten.forward([pooled], [flat])
        self.concat.forward(self.flat, top)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        if self.levels == 1:
            self.pools[0].backward(top, propagate_down, bottom)
            return
        self.concat.backward(top, [True] * self.levels, self.flat)
        for pool, flatten, part, pooled, flat in self._levels():
            flatten.backward([flat], propagate_down, [pooled])
            pool.backward([pooled], propagate_down, [part])
        self.split.backward(self.parts, propagate_down, bottom)

    def _levels(self) -> list[tuple[Layer, Layer, Blob, Blob, Blob]]:
        return list(zip(self.pools, self.flattens, self.parts, self.pooled, self.flat, strict=True))
