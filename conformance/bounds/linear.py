"""Formulas of layers that are sums of products: InnerProduct, Embed, Bias, Scale, Eltwise, Reduction."""

from __future__ import annotations

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, blocks, formula, places
from conformance.bounds.running import Bounded, bilinear, concatenate, dot, where

_PROD, _SUM = 0, 1  # EltwiseParameter.EltwiseOp
_ASUM, _SUMSQ, _MEAN = 2, 3, 4  # ReductionParameter.ReductionOp


def matmul(a: Bounded, b: Bounded, start: Bounded | None = None) -> Bounded:
    """Matrix product, onto ``start``."""
    return bilinear(np.matmul, a, b, a.shape[-1], start)


def transposed(matrix: Bounded) -> Bounded:
    return matrix.each(np.transpose)


class Affine:
    """x Wᵀ (+ b) with x (M, K), W (N, K), b (N): an InnerProduct and its gradients."""

    def __init__(self, weight: Bounded, bias: Bounded | None = None) -> None:
        self.weight, self.bias = weight, bias

    def forward(self, x: Bounded) -> Bounded:
        y = matmul(x, transposed(self.weight))
        return y if self.bias is None else y + self.bias

    def backward(self, dy: Bounded) -> Bounded:
        return matmul(dy, self.weight)

    @staticmethod
    def weight_diff(x: Bounded, dy: Bounded, start: Bounded | None = None) -> Bounded:
        return matmul(transposed(dy), x, start)


@formula("InnerProduct")
class InnerProduct(Formula):
    """y = x Wᵀ + b over the axes from ``axis`` on; W is (K, out) if transposed."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, x = self.layer.inner_product_param, bottoms[0]
        self.turn = transposed if given.transpose else lambda matrix: matrix
        self.axis = given.axis % len(x.shape)
        rows = blocks(x.shape, self.axis)[0]
        weight = self.turn(params[0].reshape(params[0].shape))
        self.affine = Affine(weight, params[1] if given.bias_term else None)
        return [self.affine.forward(x.reshape(rows, -1)).reshape(*x.shape[: self.axis], weight.shape[0])]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [self.affine.backward(self._flat(top_diffs[0])).reshape(bottoms[0].shape)]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        dy = self._flat(top_diffs[0])
        x = bottoms[0].reshape(dy.shape[0], -1)
        weight = self.turn(self.affine.weight_diff(x, dy, self.turn(old[0])))
        return [weight, *(dy.sum(0, start=bias) for bias in old[1:])]

    def _flat(self, dy: Bounded) -> Bounded:
        return dy.reshape(-1, dy.shape[-1])


@formula("Embed")
class Embed(Formula):
    """The gradient of a row of W is the sum of d over all places that hold its index."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        rows = params[0][places(bottoms[0])]
        rows = rows + params[1] if self.layer.embed_param.bias_term else rows
        return [rows.reshape(*bottoms[0].shape, params[0].shape[1])]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        index = places(bottoms[0])
        dy = top_diffs[0].reshape(index.size, -1)
        rows = [dy[index == row].sum(0, start=old[0][row]).reshape(1, -1) for row in range(params[0].shape[0])]
        return [concatenate(rows), *(dy.sum(0, start=bias) for bias in old[1:])]


def _around(x: Bounded, operand: Bounded, axis: int) -> tuple[int, int, int]:
    """The shape of ``x`` as outer × operand × inner; the operand's axes begin at ``axis``, a scalar's at 0."""
    first = axis % max(len(x.shape), 1) if operand.shape else 0
    return blocks(x.shape, first, first + len(operand.shape))


def _sum_around(d: Bounded, operand: Bounded, axis: int, start: Bounded | None = None) -> Bounded:
    """The gradient of an operand that was added: the sum over all other axes."""
    onto = None if start is None else start.reshape(-1)
    return d.reshape(_around(d, operand, axis)).sum((0, 2), onto).reshape(operand.shape)


@formula("Bias")
class Bias(Formula):
    """The gradient of the bias is the sum of d over all other axes; a parameter's is added to."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        x, bias = bottoms[0], bottoms[1] if len(bottoms) > 1 else params[0]
        shape = _around(x, bias, self.layer.bias_param.axis)
        return [(x.reshape(shape) + bias.reshape(1, -1, 1)).reshape(x.shape)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        axis = self.layer.bias_param.axis
        return [top_diffs[0], *(_sum_around(top_diffs[0], bias, axis) for bias in bottoms[1:])]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        axis = self.layer.bias_param.axis
        return [_sum_around(top_diffs[0], params[0], axis, diff) for diff in old]


@formula("Scale")
class Scale(Formula):
    """The gradient of the scale is the sum of d·u over all other axes, of the inner bias that of d."""

    bottoms_always = True  # a bottom without gradient may be used as working memory

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.u = bottoms[0]
        self.scale = bottoms[1] if len(bottoms) > 1 else params[0]
        return [self._times(self.u, self.scale)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d, scale = top_diffs[0], self.scale
        if len(bottoms) == 1:
            return [self._times(d, scale)]
        product = d * self.u
        in_memory = wanted[1] and scale.size != d.size and not self.in_place
        first = self._times(d, scale) if wanted[0] else product if in_memory else None
        return [first, self._scale_diff(d, scale) if wanted[1] else None]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        d, given = top_diffs[0], self.layer.scale_param
        new = list(old)
        if len(bottoms) == 1:
            outer, n, _ = _around(d, params[0], given.axis)
            is_set = n == d.size or (outer == 1 and n > 1)
            new[0] = self._scale_diff(d, params[0], None if is_set else old[0])
        if given.bias_term:
            operand = bottoms[1] if len(bottoms) > 1 else params[0]
            new[-1] = _sum_around(d, operand, given.axis, old[-1])
        return new

    def _times(self, x: Bounded, scale: Bounded) -> Bounded:
        shape = _around(x, scale, self.layer.scale_param.axis)
        return (x.reshape(shape) * scale.reshape(1, -1, 1)).reshape(x.shape)

    def _scale_diff(self, d: Bounded, scale: Bounded, start: Bounded | None = None) -> Bounded:
        shape = _around(d, scale, self.layer.scale_param.axis)
        onto = None if start is None else start.reshape(-1)
        return dot(d.reshape(shape), self.u.reshape(shape), (0, 2), onto).reshape(scale.shape)


@formula("PReLU")
class PReLU(Formula):
    """The gradient of the slopes, on a device: the sum of d·u over all that is not above 0."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.u = bottoms[0]
        self.slopes = params[0].reshape(1, -1, *[1] * (len(self.u.shape) - 2))
        return [where(self.u.value > 0, self.u, self.u * self.slopes)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [where(self.u.value > 0, top_diffs[0], top_diffs[0] * self.slopes)]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        terms = where(self.u.value > 0, 0.0, top_diffs[0] * self.u)
        axes = tuple(axis for axis in range(len(self.u.shape)) if axis != 1 or params[0].size == 1)
        return [terms.sum(axes, old[0].reshape(terms.value.sum(axes).shape)).reshape(params[0].shape)]


@formula("Eltwise")
class Eltwise(Formula):
    """Σ c·u: as many products, each with its addition, as there are bottoms."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given = self.layer.eltwise_param
        coefficients = Bounded(list(given.coeff) or [1.0] * len(bottoms))
        stacked = concatenate([bottom.reshape(1, -1) for bottom in bottoms])
        return [dot(coefficients.reshape(-1, 1), stacked, 0).reshape(bottoms[0].shape)]


@formula("Reduction")
class Reduction(Formula):
    """coeff · Σ u, Σ |u| or Σ u² over the axes from ``axis`` on; the mean's coeff is divided by their count."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.reduction_param, bottoms[0]
        axis = given.axis % max(len(u.shape), 1)
        rows = u.reshape(blocks(u.shape, axis)[0], -1)
        if given.operation == _SUMSQ:
            total = dot(rows, rows, 1)
        else:
            total = (abs(rows) if given.operation == _ASUM else rows).sum(1)
        coefficient = Bounded(given.coeff) / (rows.shape[1] if given.operation == _MEAN else 1)
        return [(total * coefficient).reshape(u.shape[:axis])]
