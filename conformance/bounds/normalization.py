"""Formulas of BatchNorm, MVN and LRN."""

from __future__ import annotations

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, formula
from conformance.bounds.running import Bounded, bounded, concatenate, constant, dot

_WITHIN_CHANNEL = 1  # LRNParameter.NormRegion


@formula("BatchNorm")
class BatchNorm(Formula):
    """v = (u - mean) / sqrt(var + eps); moving sums of means and variances in the parameters."""

    bottoms_always = True

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.batch_norm_param, bottoms[0]
        self.shape = u.shape[0], u.shape[1] if len(u.shape) > 1 else 1, -1
        u = u.reshape(self.shape)
        self.stored = given.use_global_stats if given.HasField("use_global_stats") else not self.train
        if self.stored:
            weight = params[2].reshape(())
            factor = bounded(0.0) if weight.value == 0 else 1.0 / weight
            mean, variance = params[0] * factor, params[1] * factor
            centred = u - _per_channel(mean)
        else:
            mean = u.mean((0, 2))
            centred = u - _per_channel(mean)
            variance = (centred * centred).mean((0, 2))
            self._move(mean, variance, u.size // mean.size, params)
        self.deviation = _per_channel((variance + given.eps).sqrt())
        self.v = centred / self.deviation
        return [self.v.reshape(bottoms[0].shape)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0].reshape(self.shape)
        if not self.stored:
            n = d.shape[0] * d.shape[2]
            along = self.v * _per_channel(dot(d, self.v, (0, 2))) + _per_channel(d.sum((0, 2)))
            d = d + along * constant(-1 / n)
        return [(d / self.deviation).reshape(bottoms[0].shape)]

    def _move(self, mean: Bounded, variance: Bounded, n: int, params: Arrays) -> None:
        fraction = self.layer.batch_norm_param.moving_average_fraction
        params[0] = params[0] * fraction + mean
        params[1] = params[1] * fraction + variance * constant(n / (n - 1) if n > 1 else 1)
        params[2] = params[2] * fraction + 1.0


def _per_channel(values: Bounded) -> Bounded:
    return values.reshape(1, -1, 1)


@formula("MVN")
class MVN(Formula):
    """v = (u - mean) / (sqrt(var) + eps) per channel, or per image."""

    bottoms_always = True

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.mvn_param, bottoms[0]
        rows = u.shape[0] if given.across_channels else int(np.prod(u.shape[:2]))
        u = u.reshape(rows, -1)
        self.v = centred = u - u.mean(1, keepdims=True)
        if given.normalize_variance:
            self.deviation = centred.pow(2).mean(1, keepdims=True).pow(0.5) + given.eps
            self.v = centred.over(self.deviation, given.eps)  # a root is not negative, even one of noise
        shape = bottoms[0].shape + (1,) * (4 - len(bottoms[0].shape))
        return [self.v.reshape(shape)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        d = top_diffs[0].reshape(self.v.shape)
        if self.layer.mvn_param.normalize_variance:
            along = self.v * _column(dot(d, self.v, 1)) + d.sum(1, keepdims=True)
            d = (d + along * constant(-1 / d.shape[1])).over(self.deviation, self.layer.mvn_param.eps)
        else:
            d = d - d.mean(1, keepdims=True)
        return [d.reshape(bottoms[0].shape)]


def _column(values: Bounded) -> Bounded:
    return values.reshape(-1, 1)


@formula("LRN")
class LRN(Formula):
    """Across channels: v = u·s^-beta, s a running sum over channels. Within: a PowerLayer of average pooled squares."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given, u = self.layer.lrn_param, bottoms[0]
        self.bottoms_always = given.norm_region != _WITHIN_CHANNEL
        self.size, self.beta = given.local_size, given.beta
        self.pad = (given.local_size - 1) // 2
        if given.norm_region == _WITHIN_CHANNEL:
            self.inside = self._pooled(u.pow(2)) * given.alpha + 1.0
            self.power = self.inside.pow(-self.beta)
            return [u * self.power]
        # The running sum adds the square that comes into the window and takes off the one that leaves it.
        squares = self._padded(u * u) * constant(given.alpha / self.size)
        scale = squares[:, : self.size].sum(1, start=Bounded(np.full(u[:, 0].shape, given.k)))
        scales = [scale]
        for c in range(1, u.shape[1]):
            scales.append(scales[-1] + squares[:, c + self.size - 1] - squares[:, c - 1])
        self.scale = _stacked(scales)
        self.power = self.scale.pow(-self.beta)
        return [u * self.power]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        given, u, d = self.layer.lrn_param, bottoms[0], top_diffs[0]
        if given.norm_region == _WITHIN_CHANNEL:
            return [self._within_gradient(u, d)]
        ratios = self._padded(d * tops[0] / self.scale)
        total = ratios[:, : self.size - 1].sum(1)
        sums = []
        for c in range(u.shape[1]):
            total = total + ratios[:, c + self.size - 1]
            sums.append(total)
            total = total - ratios[:, c]
        factor = constant(2 * given.alpha * self.beta / self.size)
        return [d * self.power - u * _stacked(sums) * factor]

    def _within_gradient(self, u: Bounded, d: Bounded) -> Bounded:
        """Back through product, power, pooling and square, then the two ways add up."""
        slope = self.power / self.inside * constant(-self.beta * self.layer.lrn_param.alpha)
        spread = self._spread(d * u * slope)
        return d * self.power + spread * (u * 2.0)

    def _padded(self, u: Bounded) -> Bounded:
        return u.each(lambda array: np.pad(array, [(0, 0), (self.pad, self.pad), (0, 0), (0, 0)]))

    def _pooled(self, squares: Bounded) -> Bounded:
        return _box(squares, self.pad) / float(self.size**2)

    def _spread(self, d: Bounded) -> Bounded:
        return _box(d / float(self.size**2), self.pad)


def _box(image: Bounded, pad: int) -> Bounded:
    """Sums over all windows of 2·pad + 1 in both directions; zeros outside are not added."""
    h, w = image.shape[2:]
    size = 2 * pad + 1
    framed = image.each(lambda array: np.pad(array, [(0, 0), (0, 0), (pad, pad), (pad, pad)]))
    shifts = [framed[:, :, i : i + h, j : j + w].reshape(1, *image.shape) for i in range(size) for j in range(size)]
    return concatenate(shifts).sum(0)


def _stacked(channels: list[Bounded]) -> Bounded:
    return concatenate([channel.each(lambda array: array[:, None]) for channel in channels], axis=1)
