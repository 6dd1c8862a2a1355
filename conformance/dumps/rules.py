"""The formula of every layer type: those of ``conformance.bounds``, and here those that recorded cases need none for.

Original Caffe computes these bit for bit as refcaffe does; another engine may add or multiply in another order.
"""

from __future__ import annotations

from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from conformance.bounds import formula as of_bounds
from conformance.bounds import linear, losses, replay  # noqa: F401  (replay has all formulas imported)
from conformance.bounds.formula import Arrays, Formula, MaybeArrays, blocks, places
from conformance.bounds.running import Bounded, bounded, constant, dot, where
from conformance.dumps import doubles
from refcaffe.proto.caffe_pb2 import EltwiseParameter, HingeLossParameter, ReductionParameter

SOURCES = frozenset(
    {"Data", "DummyData", "HDF5Data", "ImageData", "Input", "MemoryData", "WindowData"}
)  # nothing to compute: both runs must have got the same


def find(layer_type: str, param: Any) -> type[Formula] | None:
    """The formula of a layer; None if there is none for its type."""
    if layer_type == "Eltwise":
        return {EltwiseParameter.PROD: EltwiseProduct, EltwiseParameter.SUM: EltwiseSum}.get(
            param.eltwise_param.operation, doubles.EltwiseMax
        )
    return _OWN.get(layer_type) or of_bounds.find(layer_type)


def _sure(u: Bounded, wrong: Bounded, right: Bounded, limit: float = 0.0) -> Bounded:
    """``right`` where u > limit, else ``wrong``; where rounding decides which, the error reaches to the other."""
    chosen = where(u.value > limit, right, wrong)
    unsure = (np.abs(u.value - limit) <= u.error) & (u.error > 0)
    other = np.abs(right.value - wrong.value) + right.error + wrong.error
    return Bounded(chosen.value, np.where(unsure, other, chosen.error))


class ReLU(Formula):
    """max(u, 0) + slope·min(u, 0); the gradient at 0 is the slope."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        u = bottoms[0]
        return [u.maximum(0) + self.layer.relu_param.negative_slope * u.minimum(0)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0]
        return [_sure(bottoms[0], d * self.layer.relu_param.negative_slope, d)]


class PReLU(Formula):
    """A slope for each channel, or one; its gradient is the sum of d·u where u ≤ 0."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.u = bottoms[0]
        shape = (1, -1, *[1] * (len(self.u.shape) - 2)) if params[0].shape else (1,) * len(self.u.shape)
        self.slope = params[0].reshape(shape)
        return [self.u.maximum(0) + self.slope * self.u.minimum(0)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0]
        return [_sure(self.u, d * self.slope, d)]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        axes = tuple(a for a in range(len(self.u.shape)) if a != 1 or not params[0].shape)
        return [dot(top_diffs[0], self.u.minimum(0), axes, old[0])]


class AbsVal(Formula):
    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [abs(bottoms[0])]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d, u = top_diffs[0], bottoms[0]
        without_sign = ((u.value == 0) & (u.error == 0)) | np.isnan(u.value)
        return [where(without_sign, 0.0, _sure(u, -d, d))]


class Clip(Formula):
    """The gradient passes for min ≤ u ≤ max. What is no number becomes min."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.clip_param, bottoms[0]
        return [where(np.isnan(u.value), given.min, u.minimum(given.max).maximum(given.min))]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        given, u, d = self.layer.clip_param, bottoms[0], top_diffs[0]
        passes = (u.value >= given.min) & (u.value <= given.max)
        unsure = np.minimum(np.abs(u.value - given.min), np.abs(u.value - given.max)) <= u.error
        error = np.where(unsure & (u.error > 0), d.largest, np.where(passes, d.error, 0))
        return [Bounded(np.where(passes, d.value, 0), error)]


class Threshold(Formula):
    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        zero, one = bounded(np.zeros(bottoms[0].shape)), bounded(np.ones(bottoms[0].shape))
        return [_sure(bottoms[0], zero, one, self.layer.threshold_param.threshold)]


class Dropout(Formula):
    """TEST: a copy. TRAIN: u·scale, or 0 where it was dropped, which only the run itself can tell: ``seen``."""

    seen: np.ndarray | None = None

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        if not self.train:
            return [bottoms[0]]
        self.scale = constant(1.0 / (1.0 - self.layer.dropout_param.dropout_ratio))
        if self.seen is None:
            return [Bounded(bottoms[0].value, np.inf)]
        self.kept = self.seen.reshape(bottoms[0].shape) != 0
        self.zero = bottoms[0].value == 0  # of these nobody can tell
        return [where(self.kept, bottoms[0] * self.scale, 0.0)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0]
        if not self.train:
            return [d]
        if self.seen is None:
            return [Bounded(d.value, np.inf)]
        scaled = d * self.scale
        either = Bounded(scaled.value, scaled.largest)
        return [where(self.zero, either, where(self.kept, scaled, 0.0))]


class Scale(linear.Scale):
    """With the bias inside, which is the last parameter, of the scale's shape."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.scale = params[0] if params else bottoms[1]
        tops = super().forward(bottoms, params)
        if not self.layer.scale_param.bias_term:
            return tops
        shape = linear._around(bottoms[0], params[-1], self.layer.scale_param.axis)
        return [(tops[0].reshape(shape) + params[-1].reshape(1, -1, 1)).reshape(tops[0].shape)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        if len(bottoms) > 1:
            return super().backward(tops, top_diffs, bottoms, wanted)
        return [self._times(top_diffs[0], self.scale)]


class EltwiseSum(linear.Eltwise):
    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        coefficients = list(self.layer.eltwise_param.coeff) or [1.0] * len(bottoms)
        return [top_diffs[0] * c for c in coefficients]


class EltwiseProduct(Formula):
    """Gradient: the product of the others, or top / bottom."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [reduce(mul, bottoms)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0]
        if not self.layer.eltwise_param.stable_prod_grad:
            return [tops[0] / u * d for u in bottoms]
        ones = bounded(np.ones(d.shape))
        return [reduce(mul, [v for j, v in enumerate(bottoms) if j != i], ones) * d for i in range(len(bottoms))]


class Reduction(linear.Reduction):
    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        given, u = self.layer.reduction_param, bottoms[0]
        outer = blocks(u.shape, given.axis % max(len(u.shape), 1))[0]
        rows = u.reshape(outer, -1)
        operation = given.operation
        factor = Bounded(given.coeff) / (rows.shape[1] if operation == ReductionParameter.MEAN else 1)
        d = (top_diffs[0].reshape(outer, 1) * factor).each(lambda array: np.broadcast_to(array, rows.shape))
        if operation == ReductionParameter.ASUM:
            d = where((rows.value == 0) & (rows.error == 0), 0.0, _sure(rows, -d, d))
        elif operation == ReductionParameter.SUMSQ:
            d = d * 2.0 * rows
        return [d.reshape(u.shape)]


class EuclideanLoss(losses.EuclideanLoss):
    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        a, b = bottoms
        factor = top_diffs[0].reshape(()) / a.shape[0]
        gradient = (a - b.reshape(a.shape)) * factor
        return [gradient, -gradient.reshape(b.shape)]


class MultinomialLogisticLoss(losses.MultinomialLogisticLoss):
    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        p, n = bottoms[0], bottoms[0].shape[0]
        rows = p.reshape(n, -1)
        at_label = np.arange(rows.shape[1]) == places(bottoms[1])[:n, None]
        factor = -top_diffs[0].reshape(()) / n
        return [where(at_label, factor / rows.maximum(losses._SMALLEST_PROBABILITY), 0.0).reshape(p.shape), None]


class HingeLoss(losses.HingeLoss):
    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        n = bottoms[0].shape[0]
        u = bottoms[0].reshape(n, -1)
        at_label = np.arange(u.shape[1]) == places(bottoms[1])[:n, None]
        margins = (where(at_label, -u, u) + 1.0).maximum(0)
        factor = top_diffs[0].reshape(()) / n
        if self.layer.hinge_loss_param.norm == HingeLossParameter.L2:
            slopes = margins * 2.0 * factor
        else:
            one = bounded(np.ones(u.shape)) * factor
            slopes = _sure(margins, one * 0.0, one)
        return [where(at_label, -slopes, slopes).reshape(bottoms[0].shape), None]


class Silence(Formula):
    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return []

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [bounded(np.zeros(u.shape)) for u in bottoms]


class Parameter(Formula):
    """The top is the parameter, and has its diff."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [params[0]]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        return [top_diffs[0]]


_OWN: dict[str, type[Formula]] = {
    **dict.fromkeys(("Concat", "Flatten", "Im2col", "Reshape", "Slice", "Split", "Tile"), doubles.Moving),
    **dict.fromkeys(("Accuracy", "ArgMax"), doubles.Decision),
    "AbsVal": AbsVal,
    "BatchReindex": doubles.BatchReindex,
    "Clip": Clip,
    "Crop": doubles.Crop,
    "Dropout": Dropout,
    "EuclideanLoss": EuclideanLoss,
    "Filter": doubles.Filter,
    "HingeLoss": HingeLoss,
    "MultinomialLogisticLoss": MultinomialLogisticLoss,
    "PReLU": PReLU,
    "Parameter": Parameter,
    "Pooling": doubles.Pooling,
    "ReLU": ReLU,
    "Reduction": Reduction,
    "SPP": doubles.SPP,
    "Scale": Scale,
    "Silence": Silence,
    "Threshold": Threshold,
}
