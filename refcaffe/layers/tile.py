"""Tile: copies of a bottom along an axis."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe.checks import Checker
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.side import Side

_check = Checker("tile_layer.cpp")


@register("Tile")
class Tile(Layer):
    """The block from ``axis`` on is repeated ``tiles`` times; its gradient is their sum, in order."""

    exact_bottoms = 1
    exact_tops = 1

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        param = self.param.tile_param
        axis = bottom[0].canonical_axis(param.axis)
        _check(param.HasField("tiles"), "tile_param.has_tiles()", "Number of tiles must be specified")
        _check.gt(param.tiles, 0, "tiles_ > 0", "Number of tiles must be positive.")
        shape = list(bottom[0].shape)
        shape[axis] *= param.tiles
        top[0].reshape(shape)
        self.outer, self.inner = bottom[0].count_range(0, axis), bottom[0].count_range(axis)

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        x = side.data(bottom[0]).reshape(self.outer, 1, self.inner)
        y = side.mutable_data(top[0]).reshape(self.outer, -1, self.inner)
        y[...] = x

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        dy = side.diff(top[0]).reshape(self.outer, -1, self.inner)
        dx = side.mutable_diff(bottom[0]).reshape(self.outer, self.inner)
        dx[...] = dy[:, 0]
        for tile in range(1, dy.shape[1]):
            dx += dy[:, tile]
