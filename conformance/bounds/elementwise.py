"""Formulas of the element-wise layers that use libm."""

from __future__ import annotations

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, formula
from conformance.bounds.running import Bounded, bounded, constant, where

_BNLL_THRESHOLD = 50.0


@formula("BNLL")
class BNLL(Formula):
    """u > 0: u + log(1. + exp(-u)), else log(1. + exp(u)): exp of a float, the rest in double."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        u = bottoms[0]
        logarithm = ((-abs(u)).exp().doubled() + 1.0).log()
        return [(u.maximum(0) + logarithm).rounded()]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        e = bottoms[0].minimum(_BNLL_THRESHOLD).exp()
        return [((top_diffs[0] * e).doubled() / (e.doubled() + 1.0)).rounded()]


@formula("ELU")
class ELU(Formula):
    """max(u, 0) + alpha·(exp(min(u, 0)) - 1), where exp(0) is 1."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        u = bottoms[0]
        alpha = self.layer.elu_param.alpha
        below = alpha * (u.minimum(0).exp() - 1.0)
        return [where(u.value > 0, u, below)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        alpha = self.layer.elu_param.alpha
        return [top_diffs[0] * where(bottoms[0].value > 0, 1.0, tops[0] + alpha)]


@formula("Exp")
class Exp(Formula):
    """outer·exp(inner·u); both factors come from libm if a base is given."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given = self.layer.exp_param
        base = bounded(given.base)
        log_base = bounded(1.0) if given.base == -1 else base.log()
        self.inner = log_base * given.scale
        power = bounded(given.shift).exp() if given.base == -1 else base.pow(given.shift)
        outer = bounded(1.0) if given.shift == 0 else power
        return [outer * (self.inner * bottoms[0]).exp()]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [tops[0] * top_diffs[0] * self.inner]


@formula("Log")
class Log(Formula):
    """(1 / log base)·log(scale·u + shift)."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given = self.layer.log_param
        self.log_base = bounded(1.0) if given.base == -1 else bounded(given.base).log()
        return [self._inside(bottoms[0]).log() * (1.0 / self.log_base)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        slope = self._inside(bottoms[0]).pow(-1) * (self.layer.log_param.scale / self.log_base)
        return [(slope if self.in_place else top_diffs[0]) * slope]

    def _inside(self, u: Bounded) -> Bounded:
        return u * self.layer.log_param.scale + self.layer.log_param.shift


@formula("Power")
class Power(Formula):
    """(scale·u + shift)^power."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.power_param, bottoms[0]
        if given.scale * given.power == 0:
            value = bounded(1.0) if given.power == 0 else bounded(given.shift).pow(given.power)
            return [value.each(lambda array: np.broadcast_to(array, u.shape))]
        inside = u * given.scale + given.shift
        return [inside if given.power == 1 else inside.pow(given.power)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        given, u = self.layer.power_param, bottoms[0]
        factor = constant(given.scale * given.power)
        if given.scale * given.power == 0 or given.power == 1:
            slope = factor
        elif given.power == 2:
            slope = u * (factor * given.scale) + factor * given.shift
        elif given.shift == 0:
            slope = tops[0] / u * given.power
        else:
            slope = tops[0] / (u * given.scale + given.shift) * factor
        return [(slope if self.in_place else top_diffs[0]) * slope]


@formula("Sigmoid")
class Sigmoid(Formula):
    """0.5·tanh(0.5·u) + 0.5; gradient d·v (float) ·(1. - v) (double, on a device float)."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [bottoms[0].sigmoid()]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        v = tops[0]
        if self.device:
            return [top_diffs[0] * v * (1.0 - v)]
        return [((top_diffs[0] * v).doubled() * (1.0 - v.doubled())).rounded()]


@formula("Swish")
class Swish(Formula):
    """u·sigmoid(beta·u); gradient d·(beta·v + s·(1. - beta·v)), the outer terms in double, on a device in float."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.s = (bottoms[0] * self.layer.swish_param.beta).sigmoid()
        return [bottoms[0] * self.s]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        scaled = tops[0] * self.layer.swish_param.beta
        if self.device:
            return [top_diffs[0] * (scaled + self.s * (1.0 - scaled))]
        slope = scaled.doubled() + self.s.doubled() * (1.0 - scaled.doubled())
        return [(top_diffs[0].doubled() * slope).rounded()]


@formula("TanH")
class TanH(Formula):
    """d·(1 - v²), in float."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [bottoms[0].tanh()]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [top_diffs[0] * (1.0 - tops[0] * tops[0])]
