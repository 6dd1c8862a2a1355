"""Convolution: each position of a window over the bottom becomes one place of the top."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from refcaffe.layers.base import register
from refcaffe.layers.base_convolution import BaseConvolution
from refcaffe.layers.window import Window
from refcaffe.side import Side


@register("Convolution")
class Convolution(BaseConvolution):
    """weight · columns of the bottom + bias."""

    bottom_is_image = True

    def output_shape(self, window: Window, size: Sequence[int]) -> tuple[int, ...]:
        return window.positions(size)

    def host_forward(self, x: Any, weight: Any, y: Any, bias: Any) -> None:
        self.products.forward(x, weight, y, bias)

    def host_backward(self, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        self.products.backward(x, dy, weight, weight_diff=weight_diff, to_images=dx)

    def image_forward(self, side: Side, x: Any, weight: Any, y: Any) -> None:
        self.image_to_grid(side, x, weight, y)

    def image_backward(self, side: Side, x: Any, dy: Any, weight: Any, weight_diff: Any, dx: Any) -> None:
        if weight_diff is not None:
            self.add_weight_diff(side, x, dy, weight_diff)
        if dx is not None:
            self.grid_to_image(side, dy, weight, dx)
