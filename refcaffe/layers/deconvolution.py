"""Deconvolution: what Convolution's backward pass does to the diff of its top, as a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.layers.base import register
from refcaffe.layers.base_convolution import BaseConvolution
from refcaffe.layers.window import Window
from refcaffe.side import Side


@register("Deconvolution")
class Deconvolution(BaseConvolution):
    """Each place of the bottom adds its weighted window to the top."""

    bottom_is_image = False

    def output_shape(self, window: Window, size: Sequence[int]) -> tuple[int, ...]:
        return window.covered(size)

    def host_forward(self, x: Any, weight: Any, y: Any, bias: Any) -> None:
        self.products.backward(None, x, weight, to_images=y, bias=bias)

    def host_backward(self, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        self.products.backward(dy, x, weight, weight_diff=weight_diff, to_grids=dx)

    def image_forward(self, side: Side, x: Any, weight: Any, y: Any) -> None:
        self.grid_to_image(side, x, weight, y)

    def image_backward(self, side: Side, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        columns = None
        if weight_diff is not None:
            columns = self.add_weight_diff(side, dy, x, weight_diff)
        if dx is not None:
            self.image_to_grid(side, dy, weight, dx, columns)
