"""The products of convolution on the host: columns are made and multiplied in pieces, several at the same time.

A piece is some rows of an image's grid, or several small images: few enough columns to stay in a core's cache.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from refcaffe.kernels.im2col import Columns, add_columns, im2col
from refcaffe.kernels.parallel import for_each, in_order, num_threads, scratch
from refcaffe.kernels.products import ENOUGH, multiply, product
from refcaffe.side import HOST

PIECE = 1 << 20  # elements of columns that a piece has at most
WORTHWHILE = 1 << 17  # and at least, if there are images enough
WIDE = 1024  # places from which on products are about as fast as they get
NARROW = 96  # places below which they become slow
PIECES = 8  # of a batch whose sums are added up: the same on every machine
SMALL_WEIGHT = 1 << 15  # elements up to which it is better to keep pieces of a gradient than to wait for one's turn
LARGE_WEIGHT = 1 << 22

Rows = tuple[int, int]


class Products:
    """Products of ``weight`` (group, grid channels / group, depth) and the columns of images.

    Images are (N, channels, pixels), grids (N, channels, places). ``where``: None for a window that is a point,
    whose columns are the image itself.
    """

    def __init__(self, weight: tuple[int, int, int], grid: tuple[int, ...], where: Columns | None) -> None:
        self.group, self.grid_channels, self.depth = weight
        self.places = prod(grid)
        self.width = grid[-1] if where is not None else 1
        self.rows = self.places // max(1, self.width)
        self.where = where

    def _pieces(self, images: int, pieces: int, divisible: bool) -> tuple[int, list[Rows]]:
        """How many images a piece takes, and the ranges of rows; ``divisible``: an image may be divided.

        ``pieces``: how many there should be at least, if there are images enough.
        """
        elements, places = max(1, self.group * self.depth * self.places), max(1, self.places)
        together = min(max(WORTHWHILE // elements, -(-WIDE // places)), PIECE // elements, -(-images // pieces))
        parts = -(-elements // PIECE)
        if divisible and self._worthwhile(images):
            parts = max(parts, min(-(-pieces // max(1, images)), self.places // NARROW))
        step = max(1, -(-self.rows // parts))
        return max(1, together), [(start, min(start + step, self.rows)) for start in range(0, self.rows, step)]

    def _worthwhile(self, images: int) -> bool:
        return images * self.group * self.grid_channels * self.depth * self.places > ENOUGH

    def forward(self, images: Any, weight: Any, grids: Any, bias: Any) -> None:
        """grids = weight · columns of the images + bias (a column, or None)."""
        # Borders leave no trace in these sums, so that there need be no more than the threads here make use of.
        together, ranges = self._pieces(len(images), 2 * num_threads(), divisible=True)
        if bias is not None:
            bias = bias.reshape(self.group, -1)
        if len(images) == len(ranges) == 1 and self._worthwhile(1):
            self._forward_by_outputs(images, weight, grids, bias)
            return

        def piece(i: int) -> None:
            block, part = divmod(i, len(ranges))
            some = slice(block * together, (block + 1) * together)
            columns = self._columns(images[some], ranges[part])
            multiply(weight, columns, self._part(grids[some], ranges[part]), bias)

        for_each(-(-len(images) // together) * len(ranges), piece, self._worthwhile(len(images)))

    def _forward_by_outputs(self, images: Any, weight: Any, grids: Any, bias: Any) -> None:
        """As ``forward``, for one image with a small grid."""
        columns = self._columns(images, (0, self.rows))
        grid = self._part(grids, (0, self.rows))
        step = -(-weight.shape[1] // max(1, weight.shape[1] // NARROW))
        starts = range(0, weight.shape[1], step)

        def block(i: int) -> None:
            g, start = i // len(starts), starts[i % len(starts)]
            some = slice(g, g + 1), slice(start, start + step)
            multiply(weight[some], columns[some[0]], grid[some], None if bias is None else bias[some])

        for_each(self.group * len(starts), block)

    def backward(
        self,
        images: Any,
        grids: Any,
        weight: Any,
        *,
        weight_diff: Any = None,
        to_images: Any = None,
        bias: Any = None,
        to_grids: Any = None,
    ) -> None:
        """Those that are given of: weight_diff += grids · columnsᵀ, summed up in the order of the images;

        to_images = the sum, over all positions that see a pixel, of weightᵀ · grids, + bias (a column, or None);
        to_grids = weight · columns. ``images`` are needed where columns are.
        """
        if weight_diff is not None and weight.size > LARGE_WEIGHT:
            self._add_large_product(images, grids, weight_diff)
            weight_diff = None
        together, ranges = self._pieces(len(grids), PIECES, divisible=False)

        def piece(i: int) -> Any:
            some = slice(i * together, (i + 1) * together)
            total = None
            if to_images is not None:
                to_images[some].fill(0)
            for rows in ranges:
                grid = self._part(grids[some], rows)
                if weight_diff is not None or to_grids is not None:
                    columns = self._columns(images[some], rows)
                if weight_diff is not None:
                    total = self._add_product(total, grid, columns)
                if to_grids is not None:
                    multiply(weight, columns, self._part(to_grids[some], rows))
                if to_images is not None:
                    self._add_to_images(weight, grid, to_images[some], rows)
            if bias is not None:
                to_images[some] += bias
            return total

        def commit(total: Any) -> None:
            if total is not None:
                np.add(weight_diff, total, out=weight_diff)

        pieces, worthwhile = -(-len(grids) // together), self._worthwhile(len(grids))
        if weight.size > SMALL_WEIGHT:
            in_order(pieces, piece, commit, worthwhile)
            return
        products: list[Any] = [None] * pieces

        def keep(i: int) -> None:
            total = piece(i)
            products[i] = None if total is None else total.copy()

        for_each(pieces, keep, worthwhile)
        for kept in products:
            commit(kept)

    def _add_large_product(self, images: Any, grids: Any, weight_diff: Any) -> None:
        """As in ``backward``, divided by rows of the weight, so that no second array of its size is needed."""
        whole = (0, self.rows)
        for n in range(len(grids)):
            columns = self._columns(images[n : n + 1], whole)[:, :, 0]
            grid = self._part(grids[n : n + 1], whole)[:, :, 0]
            product(HOST, grid, columns.swapaxes(-1, -2), weight_diff, add=True)

    # --- parts of arrays, as matrices (group, rows, images, places)

    def _part(self, arrays: Any, rows: Rows) -> Any:
        """Some rows of grids or, if the window is a point, of images."""
        arrays = arrays.reshape(len(arrays), self.group, -1, self.places).transpose(1, 2, 0, 3)
        return arrays[..., rows[0] * self.width : rows[1] * self.width]

    def _columns(self, images: Any, rows: Rows) -> Any:
        """The images' columns that belong to some rows of the grid."""
        if self.where is None:
            return self._part(images, rows)
        columns = self._buffer(images, rows)
        im2col(HOST, self.where, images, columns, rows[0])
        return columns

    def _buffer(self, like: Any, rows: Rows) -> Any:
        shape = (self.group, self.depth, len(like), (rows[1] - rows[0]) * self.width)
        return scratch("columns", shape, like.dtype)

    def _add_product(self, total: Any, grid: Any, columns: Any) -> Any:
        """``total``, None at first, + grid · columnsᵀ."""
        if grid.shape[3] < NARROW:  # small images side by side
            grid, columns = (array.reshape(*array.shape[:2], 1, -1) for array in (grid, columns))
        for n in range(grid.shape[2]):
            fresh = total is None
            if fresh:
                total = scratch("total", (self.group, self.grid_channels, self.depth), grid.dtype)
            multiply(grid[:, :, n], columns[:, :, n].swapaxes(-1, -2), total, add=not fresh)
        return total

    def _add_to_images(self, weight: Any, grid: Any, images: Any, rows: Rows) -> None:
        """images += weightᵀ · some rows of a grid, at the pixels that they see."""
        turned = weight.transpose(0, 2, 1)
        if self.where is None:
            multiply(turned, grid, self._part(images, rows))
            return
        columns = self._buffer(images, rows)
        multiply(turned, grid, columns)
        add_columns(HOST, self.where, columns, images, rows[0], keeps=False)
