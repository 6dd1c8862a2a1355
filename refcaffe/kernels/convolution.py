"""The products of convolution on the host: columns are made and multiplied in pieces, several at the same time.

A piece is some rows of an image's grid, or several small images: few enough columns to stay in a core's cache.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from refcaffe.kernels.im2col import Columns, add_columns, im2col
from refcaffe.kernels.parallel import for_each, in_order, scratch
from refcaffe.kernels.products import add_product
from refcaffe.side import HOST

PIECE = 3 << 17  # elements of columns
PIECES = 8  # that a batch has at least, so that every thread gets some
LARGE_WEIGHT = 1 << 22
NARROW = 96  # places below which products become slow

Rows = tuple[int, int]


class Products:
    """Products of ``weight`` (group, grid channels / group, depth) and the columns of images.

    Images are (N, channels, pixels), grids (N, channels, places); ``grid_width`` places make a row of the grid.
    ``where``: None for a window that is a point, whose columns are the image itself.
    """

    def __init__(self, weight: tuple[int, int, int], grid: tuple[int, ...], where: Columns | None) -> None:
        self.group, self.grid_channels, self.depth = weight
        self.places = prod(grid)
        self.width = grid[-1] if where is not None else 1
        self.rows = self.places // max(1, self.width)
        self.where = where

    def _pieces(self, images: int, divisible: bool) -> tuple[int, list[Rows]]:
        """How many images a piece takes, and the ranges of rows; ``divisible``: an image may be divided."""
        elements = max(1, self.group * self.depth * self.places)
        together = max(1, min(PIECE // elements, -(-images // PIECES)))
        parts = -(-elements // PIECE)
        if divisible:
            parts = max(parts, min(-(-PIECES // max(1, images)), self.places // NARROW))
        step = max(1, -(-self.rows // parts))
        return together, [(start, min(start + step, self.rows)) for start in range(0, self.rows, step)]

    def forward(self, images: Any, weight: Any, grids: Any, bias: Any) -> None:
        """grids = weight · columns of the images + bias (a column, or None)."""
        together, ranges = self._pieces(len(images), divisible=True)

        def piece(i: int) -> None:
            block, part = divmod(i, len(ranges))
            some = slice(block * together, (block + 1) * together)
            out = self._grid(grids[some], ranges[part])
            np.matmul(weight, self._columns(images[some], ranges[part]), out=out)
            if bias is not None:
                out += bias.reshape(self.group, -1, 1)

        for_each(-(-len(images) // together) * len(ranges), piece)

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
        """Those that are given of: weight_diff += grids · columnsᵀ, one image after the other;

        to_images = the sum, over all positions that see a pixel, of weightᵀ · grids, + bias (a column, or None);
        to_grids = weight · columns. ``images`` are needed where columns are.
        """
        if weight_diff is not None and weight.size > LARGE_WEIGHT:
            self._add_large_product(images, grids, weight_diff)
            weight_diff = None
        together, ranges = self._pieces(len(grids), divisible=False)

        def piece(i: int) -> Any:
            some = slice(i * together, (i + 1) * together)
            product = None
            if to_images is not None:
                to_images[some].fill(0)
            for rows in ranges:
                grid = self._grid(grids[some], rows)
                if weight_diff is not None or to_grids is not None:
                    columns = self._columns(images[some], rows)
                if weight_diff is not None:
                    product = self._add_product(product, grid, columns)
                if to_grids is not None:
                    np.matmul(weight, columns, out=self._grid(to_grids[some], rows))
                if to_images is not None:
                    self._to_images(grid, weight, to_images[some], rows)
            if bias is not None:
                to_images[some] += bias
            return product

        def commit(product: Any) -> None:
            if product is not None:
                np.add(weight_diff, product, out=weight_diff)

        in_order(-(-len(grids) // together), piece, commit)

    def _add_large_product(self, images: Any, grids: Any, weight_diff: Any) -> None:
        """As in ``backward``, divided by rows of the weight, so that no second array of its size is needed."""
        whole = (0, self.rows)
        for n in range(len(grids)):
            columns = self._columns(images[n : n + 1], whole)[0]
            add_product(HOST, self._grid(grids[n : n + 1], whole)[0], columns.swapaxes(-1, -2), weight_diff)

    def _grid(self, grids: Any, rows: Rows) -> Any:
        """Some rows of grids as (N, group, channels / group, places)."""
        grids = grids.reshape(len(grids), self.group, self.grid_channels, self.places)
        return grids[..., rows[0] * self.width : rows[1] * self.width]

    def _columns(self, images: Any, rows: Rows) -> Any:
        """The columns (N, group, depth, places) that belong to some rows of the grid."""
        if self.where is None:
            return images.reshape(len(images), self.group, self.depth, self.places)[..., rows[0] : rows[1]]
        columns = self._buffer(images, rows)
        im2col(HOST, self.where, images, columns, rows[0])
        return columns

    def _buffer(self, like: Any, rows: Rows) -> Any:
        shape = (len(like), self.group, self.depth, (rows[1] - rows[0]) * self.width)
        return scratch("columns", shape, like.dtype)

    def _to_images(self, grid: Any, weight: Any, images: Any, rows: Rows) -> None:
        turned = weight.transpose(0, 2, 1)
        if self.where is None:
            np.matmul(turned, grid, out=self._columns(images, rows))
        else:
            columns = self._buffer(images, rows)
            np.matmul(turned, grid, out=columns)
            add_columns(HOST, self.where, columns, images, rows[0])

    def _add_product(self, total: Any, grid: Any, columns: Any) -> Any:
        """``total``, None at first, + grid · columnsᵀ, the images of the piece one after the other."""
        shape = (self.group, self.grid_channels, self.depth)
        name = "product" if total is None else "part"
        product = scratch(name, (len(grid), *shape), grid.dtype)
        np.matmul(grid, columns.swapaxes(-1, -2), out=product)
        for further in product[1:]:
            product[0] += further
        if total is not None:
            total += product[0]
            return total
        return product[0]
