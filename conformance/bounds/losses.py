"""Formulas of Softmax and of the losses."""

from __future__ import annotations

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, blocks, formula, places
from conformance.bounds.running import Bounded, dot, where

_SMALLEST_PROBABILITY = 1e-20  # of MultinomialLogisticLoss and InfogainLoss
_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)  # of SoftmaxWithLoss

_FULL, _VALID, _BATCH_SIZE, _NONE = range(4)  # LossParameter.NormalizationMode


@formula("Softmax")
class Softmax(Formula):
    """exp(u - max) / Σ exp(u - max) over an axis."""

    bottoms_always = True

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        u = bottoms[0]
        return [softmax(u, self.layer.softmax_param.axis % len(u.shape))]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        v, d = tops[0], top_diffs[0]
        axis = self.layer.softmax_param.axis % len(v.shape)
        total = dot(d, v, axis).each(lambda array: np.expand_dims(array, axis))
        return [(d - total) * v]


def softmax(u: Bounded, axis: int) -> Bounded:
    e = (u - u.max(axis, keepdims=True)).exp()
    return e / e.sum(axis, keepdims=True)


class _LabelledLoss(Formula):
    """A loss over places (outer × inner around ``axis``) with a label each, some of them ignored."""

    def _divisor(self, outer: int, valid: int, inner: int, default: int) -> float:
        given = self.layer.loss_param
        mode = given.normalization if given.HasField("normalization") else default
        if not given.HasField("normalization") and given.HasField("normalize"):
            mode = _VALID if given.normalize else _BATCH_SIZE
        return max({_FULL: outer * inner, _VALID: valid, _BATCH_SIZE: outer, _NONE: 1}[mode], 1)

    def _counted(self, labels: np.ndarray) -> np.ndarray:
        given = self.layer.loss_param
        return labels != given.ignore_label if given.HasField("ignore_label") else np.ones(labels.shape, bool)


class _SoftmaxLoss(_LabelledLoss):
    """Common part of the two losses over a softmax; columns are places, rows are classes."""

    axis = 1

    def _prepare(self, bottoms: Arrays) -> None:
        u = bottoms[0]
        outer, classes, inner = blocks(u.shape, self.axis)
        self.shape = outer, classes, inner
        self.labels = places(bottoms[1])
        self.counted = self._counted(self.labels)
        self.divisor = self._divisor(outer, int(self.counted.sum()), inner, _VALID)
        self.p = self._columns(softmax(u.reshape(self.shape), 1))

    def _columns(self, array: Bounded) -> Bounded:
        return array.each(lambda a: a.transpose(1, 0, 2).reshape(a.shape[1], -1))

    def _gradient(self, columns: Bounded, top_diff: Bounded, shape: tuple[int, ...]) -> Bounded:
        outer, classes, inner = self.shape
        columns = where(self.counted, columns, 0.0) * (top_diff.reshape(()) / self.divisor)
        return columns.each(lambda a: a.reshape(classes, outer, inner).transpose(1, 0, 2).reshape(shape))


@formula("SoftmaxWithLoss")
class SoftmaxWithLoss(_SoftmaxLoss):
    """-Σ log(max(p, FLT_MIN)) / divisor; gradient p, less 1 at the label, times weight / divisor."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.axis = self.layer.softmax_param.axis
        self._prepare(bottoms)
        at_label = self.p[self.labels[self.counted], np.flatnonzero(self.counted)]
        return [-at_label.maximum(_SMALLEST_NORMAL).log().sum() / self.divisor]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        is_label = np.arange(self.shape[1])[:, None] == self.labels
        columns = where(is_label, self.p - 1.0, self.p)
        return [self._gradient(columns, top_diffs[0], bottoms[0].shape), None]


@formula("InfogainLoss")
class InfogainLoss(_SoftmaxLoss):
    """-Σ H[label, l]·log(max(p_l, 1e-20)) / divisor; gradient p_l·ΣH[label] - H[label, l], times weight / divisor."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.axis = self.layer.infogain_loss_param.axis
        self._prepare(bottoms)
        n = self.shape[1]
        matrix = bottoms[2] if len(bottoms) > 2 else self.read_blob(self.layer.infogain_loss_param.source)
        self.rows = matrix.reshape(n, n)[self.labels * self.counted].each(np.transpose)
        logarithms = self.p.maximum(_SMALLEST_PROBABILITY).log()
        loss = -dot(where(self.counted, self.rows, 0.0), logarithms) / self.divisor
        return [loss, self.p.each(lambda a: self._to_shape(a, bottoms[0].shape))]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        columns = self.p * self.rows.sum(0) - self.rows
        return [self._gradient(columns, top_diffs[0], bottoms[0].shape), None, None]

    def _to_shape(self, columns: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        outer, classes, inner = self.shape
        return columns.reshape(classes, outer, inner).transpose(1, 0, 2).reshape(shape)


@formula("SigmoidCrossEntropyLoss")
class SigmoidCrossEntropyLoss(_LabelledLoss):
    """-Σ (u·(t - [u ≥ 0]) - log(1 + exp(-|u|))) / divisor, in float; gradient (sigmoid(u) - t)·weight / divisor."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        u, t = bottoms
        self.counted = self._counted(places(t)).reshape(t.shape)
        outer, first, inner = u.shape[0], int(self.counted.sum()), u.size // u.shape[0]
        self.divisor = self._divisor(outer, first, inner, _BATCH_SIZE)
        positive = (u.value >= 0).astype(float)
        terms = u * (t - positive) - ((-abs(u)).exp() + 1.0).log()
        return [-where(self.counted, terms, 0.0).sum() / self.divisor]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        u, t = bottoms
        difference = where(self.counted, u.sigmoid() - t, 0.0)
        return [difference * (top_diffs[0].reshape(()) / self.divisor), None]


@formula("MultinomialLogisticLoss")
class MultinomialLogisticLoss(Formula):
    """-Σ log(max(p, 1e-20)) / N."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        p, labels = bottoms[0], places(bottoms[1])
        n = p.shape[0]
        at_label = p.reshape(n, -1)[np.arange(n), labels[:n]]
        return [-at_label.maximum(_SMALLEST_PROBABILITY).log().sum() / n]


@formula("EuclideanLoss")
class EuclideanLoss(Formula):
    """Σ (a - b)² / N / 2."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        difference = bottoms[0] - bottoms[1].reshape(bottoms[0].shape)
        return [dot(difference, difference) / bottoms[0].shape[0] / 2.0]


@formula("HingeLoss")
class HingeLoss(Formula):
    """m = max(0, 1 ± u): Σ m / N (L1) or Σ m² / N (L2)."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        n = bottoms[0].shape[0]
        u = bottoms[0].reshape(n, -1)
        at_label = np.arange(u.shape[1]) == places(bottoms[1])[:n, None]
        margins = (where(at_label, -u, u) + 1.0).maximum(0)
        squared = self.layer.hinge_loss_param.norm == 2
        return [(dot(margins, margins) if squared else margins.sum()) / n]


@formula("ContrastiveLoss")
class ContrastiveLoss(Formula):
    """Similar pairs d², others max(margin - d, 0)² (legacy: max(margin - d², 0)); Σ / N / 2."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given = self.layer.contrastive_loss_param
        n = bottoms[0].shape[0]
        self.difference = (bottoms[0] - bottoms[1].reshape(bottoms[0].shape)).reshape(n, -1)
        self.similar = places(bottoms[2]) != 0
        self.squared = dot(self.difference, self.difference, 1)
        self.left = given.margin - (self.squared if given.legacy_version else self.squared.sqrt())
        reached = self.left.maximum(0)
        others = reached if given.legacy_version else reached * reached
        return [where(self.similar, self.squared, others).sum() / n / 2.0]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        given = self.layer.contrastive_loss_param
        alpha = top_diffs[0].reshape(()) / bottoms[0].shape[0]
        pulled = -alpha if given.legacy_version else -alpha * self.left / (self.squared.sqrt() + _single(1e-4))
        others = where(self.left.value > 0, pulled, 0.0)
        # Where rounding decides whether the margin is reached, all of the gradient may be there or not.
        unsure = np.abs(self.left.value) <= self.left.error
        others = Bounded(others.value, np.where(unsure, pulled.largest, others.error))
        factor = where(self.similar, alpha, others).each(lambda array: array[:, None])
        gradient = factor * self.difference
        if self.device and given.legacy_version:  # forgets to multiply
            gradient = where(self.similar[:, None], gradient, factor)
        gradient = gradient.reshape(bottoms[0].shape)
        return [gradient, -gradient, None]


def _single(x: float) -> float:
    return float(np.float32(x))
