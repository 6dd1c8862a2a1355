"""Formulas of Convolution and Deconvolution: sums of products, which are taken over the kernel's positions here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, formula
from conformance.bounds.running import Bounded, bilinear

Shape = tuple[int, ...]


class Window:
    """A kernel sliding over a big array (batch, C, space …) and giving a small one (batch, D, space …).

    Weights are (D, C / groups, kernel …). The three maps are the convolution and its two gradients; a deconvolution is
    the second of them, from small to big.
    """

    def __init__(self, given: Any, axes: int, kernel: Shape) -> None:
        self.kernel = kernel
        self.groups = given.group
        self.stride = _per_axis(given, "stride", axes, 1)
        self.pad = _per_axis(given, "pad", axes, 0)
        self.dilation = tuple(given.dilation) * (axes if len(given.dilation) == 1 else 1) or (1,) * axes

    def small_space(self, space: Shape) -> Shape:
        """The small array's spatial shape; C++ divides toward zero, so a kernel that nearly fits gives one place."""
        sizes = zip(space, self.kernel, self.stride, self.pad, self.dilation)
        return tuple(int((n + 2 * p - (d * (k - 1) + 1)) / s) + 1 for n, k, s, p, d in sizes)

    def big_space(self, space: Shape) -> Shape:
        """The spatial shape which a deconvolution makes of the small array's."""
        sizes = zip(space, self.kernel, self.stride, self.pad, self.dilation)
        return tuple(s * (n - 1) + d * (k - 1) + 1 - 2 * p for n, k, s, p, d in sizes)

    def to_small(self, big: np.ndarray, weight: np.ndarray) -> np.ndarray:
        small = self.small_space(big.shape[2:])
        padded, cut = self._padded(big.shape, small)
        padded[cut] = big
        out = np.zeros((big.shape[0], self.groups, weight.shape[0] // self.groups, prod(small)))
        for place, at in self._places(small):
            out += np.matmul(self._weights(weight, place), self._grouped(padded[at]))
        return out.reshape(big.shape[0], weight.shape[0], *small)

    def to_big(self, small: np.ndarray, weight: np.ndarray, space: Shape) -> np.ndarray:
        shape = (small.shape[0], weight.shape[1] * self.groups, *space)
        padded, cut = self._padded(shape, small.shape[2:])
        for place, at in self._places(small.shape[2:]):
            part = np.matmul(self._weights(weight, place).swapaxes(1, 2), self._grouped(small))
            padded[at] += part.reshape(shape[0], shape[1], *small.shape[2:])
        return padded[cut]

    def to_weight(self, big: np.ndarray, small: np.ndarray, shape: Shape) -> np.ndarray:
        padded, cut = self._padded(big.shape, small.shape[2:])
        padded[cut] = big
        out = np.zeros(shape)
        places = small.shape[0] * prod(small.shape[2:])
        gradient = self._grouped(small).transpose(1, 2, 0, 3).reshape(self.groups, shape[0] // self.groups, places)
        for place, at in self._places(small.shape[2:]):
            seen = self._grouped(padded[at]).transpose(1, 0, 3, 2).reshape(self.groups, places, shape[1])
            _at(out, place)[...] = np.matmul(gradient, seen).reshape(shape[:2])
        return out

    def _padded(self, shape: Shape, small: Shape) -> tuple[np.ndarray, tuple[slice, ...]]:
        """Zeros around a big array, as far as the kernel reaches, and where in them the array lies."""
        reach = [
            max(s * (n - 1) + d * (k - 1) + 1, b + p)
            for b, n, k, s, p, d in zip(shape[2:], small, self.kernel, self.stride, self.pad, self.dilation)
        ]
        cut = (slice(None), slice(None), *(slice(p, p + b) for b, p in zip(shape[2:], self.pad)))
        return np.zeros((*shape[:2], *reach)), cut

    def _places(self, small: Shape) -> Iterator[tuple[Shape, tuple[slice, ...]]]:
        """The positions in the kernel, each with what it sees of the padded array from all small places."""
        for place in product(*map(range, self.kernel)):
            starts = [d * i for d, i in zip(self.dilation, place)]
            seen = (slice(at, at + s * (n - 1) + 1, s) for at, n, s in zip(starts, small, self.stride))
            yield place, (slice(None), slice(None), *seen)

    def _grouped(self, array: np.ndarray) -> np.ndarray:
        """(batch, group, channel, place)."""
        return array.reshape(array.shape[0], self.groups, array.shape[1] // self.groups, prod(array.shape[2:]))

    def _weights(self, weight: np.ndarray, place: Shape) -> np.ndarray:
        return _at(weight, place).reshape(self.groups, -1, weight.shape[1])


def _at(weight: np.ndarray, place: Shape) -> np.ndarray:
    """The part (D, C / groups) of weights at one position of the kernel: a view."""
    index: Any = (slice(None), slice(None), *place)
    return weight[index]


def _per_axis(given: Any, name: str, axes: int, default: int) -> Shape:
    if given.HasField(f"{name}_h") or given.HasField(f"{name}_w"):
        return getattr(given, f"{name}_h"), getattr(given, f"{name}_w")
    values = tuple(getattr(given, name))
    return values * (axes if len(values) == 1 else 1) or (default,) * axes


class _Sliding(Formula):
    """Common part: bottoms as (batch, channels, space …), weights first, then perhaps a bias per output channel."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        given = self.layer.convolution_param
        self.axis = given.axis % len(bottoms[0].shape)
        self.weight = params[0]
        self.window = Window(given, len(bottoms[0].shape) - self.axis - 1, params[0].shape[2:])
        return [self._with_bias(self._apply(self._flat(u)), params[1:], u) for u in bottoms]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        return [self._gradient(self._flat(d), self._flat(u)).reshape(u.shape) for d, u in zip(top_diffs, bottoms)]

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        new = list(old)
        for top_diff, bottom in zip(top_diffs, bottoms):
            d, u = self._flat(top_diff), self._flat(bottom)
            new[0] = self._weight_diff(u, d, new[0])
            if len(old) > 1:
                new[1] = d.reshape(*d.shape[:2], -1).sum((0, 2), new[1])
        return new

    def _apply(self, u: Bounded) -> Bounded:
        raise NotImplementedError

    def _gradient(self, d: Bounded, u: Bounded) -> Bounded:
        raise NotImplementedError

    def _weight_diff(self, u: Bounded, d: Bounded, old: Bounded) -> Bounded:
        raise NotImplementedError

    def _flat(self, array: Bounded) -> Bounded:
        return array.reshape(-1, *array.shape[self.axis :])

    def _with_bias(self, y: Bounded, bias: Arrays, u: Bounded) -> Bounded:
        for b in bias:
            y = y + b.reshape(-1, *[1] * (len(y.shape) - 2))
        return y.reshape(*u.shape[: self.axis], *y.shape[1:])

    @property
    def _terms(self) -> tuple[int, int]:
        """Products in a sum over a kernel, and over the channels and places that a big element goes to."""
        positions = prod(self.window.kernel)
        d, c = self.weight.shape[:2]
        return c * positions, d // self.window.groups * positions


@formula("Convolution")
class Convolution(_Sliding):
    def _apply(self, u: Bounded) -> Bounded:
        return bilinear(self.window.to_small, u, self.weight, self._terms[0])

    def _gradient(self, d: Bounded, u: Bounded) -> Bounded:
        space = u.shape[2:]
        return bilinear(lambda x, w: self.window.to_big(x, w, space), d, self.weight, self._terms[1])

    def _weight_diff(self, u: Bounded, d: Bounded, old: Bounded) -> Bounded:
        places = d.size // d.shape[1]
        return bilinear(lambda x, y: self.window.to_weight(x, y, old.shape), u, d, places, old)


@formula("Deconvolution")
class Deconvolution(_Sliding):
    def _apply(self, u: Bounded) -> Bounded:
        space = self.window.big_space(u.shape[2:])
        return bilinear(lambda x, w: self.window.to_big(x, w, space), u, self.weight, self._terms[1])

    def _gradient(self, d: Bounded, u: Bounded) -> Bounded:
        return bilinear(self.window.to_small, d, self.weight, self._terms[0])

    def _weight_diff(self, u: Bounded, d: Bounded, old: Bounded) -> Bounded:
        places = u.size // u.shape[1]
        return bilinear(lambda x, y: self.window.to_weight(y, x, old.shape), u, d, places, old)
