"""Running error analysis: arrays that know how far a single precision computation may be off (Wilkinson, Higham).

A ``Bounded`` holds what a computation gives in exact arithmetic (in float64, whose own error is 2⁻²⁹ of what is bounded
here) and, element by element, the largest possible distance of its single precision result from that. Every operation
passes on its operands' errors by the stated rule and adds its own rounding: half a unit in the last place for
+ − × ÷ √, which IEEE 754 rounds correctly; LIBM_ULPS for exp, log, pow, tanh; γₙ = n·u / (1 − n·u), u = 2⁻²⁴, for a sum
of n terms in any order. A wide array is a double between two roundings to float in C++: its operations add nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.compare import BLAS_FACTOR, LIBM_ULPS, UNIT

U = UNIT[np.dtype(np.float32)]
LARGEST = float(np.finfo(np.float32).max)
SMALLEST = 2.0**-149  # the distance of neighbours below the smallest normal number

Axes = int | tuple[int, ...] | None


class Bounded:
    """``value`` and ``error``, float64 arrays of one shape; ``wide`` as above. Operations broadcast like NumPy's."""

    __slots__ = ("error", "value", "wide")
    __array_ufunc__ = None  # so that array * Bounded comes here

    def __init__(self, value: Any, error: Any = 0.0, wide: bool = False) -> None:
        self.value = np.asarray(value, np.float64)
        error = np.asarray(error, np.float64)
        self.error = np.broadcast_to(np.where(np.isnan(error), np.inf, error), self.value.shape)
        self.wide = wide

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def largest(self) -> np.ndarray:
        """The largest absolute values that the computed numbers may have."""
        return np.abs(self.value) + self.error

    # --- rounding

    def doubled(self) -> Bounded:
        """The same numbers as doubles: what follows is not rounded to float."""
        return Bounded(self.value, self.error, True)

    def rounded(self) -> Bounded:
        """Assigned to a float."""
        return Bounded(self.value, self.error + _half_ulp(self.largest))

    # --- + − × ÷ √: errors by first principles, then one rounding

    def __add__(self, other: Any) -> Bounded:
        """|Δ(a + b)| ≤ Δa + Δb. Sums with 0 are not rounded."""
        other = bounded(other)
        trivial = (self.largest == 0) | (other.largest == 0)
        return self._result(self.value + other.value, self.error + other.error, other, trivial)

    def __sub__(self, other: Any) -> Bounded:
        return self + -bounded(other)

    def __mul__(self, other: Any) -> Bounded:
        """|Δ(a b)| ≤ |a| Δb + |b| Δa + Δa Δb. Products with 0 and ±1 are not rounded."""
        other = bounded(other)
        error = np.abs(self.value) * other.error + other.largest * self.error
        trivial = _is_trivial(self) | _is_trivial(other)
        return self._result(self.value * other.value, error, other, trivial)

    def __truediv__(self, other: Any) -> Bounded:
        """|Δ(a / b)| ≤ (Δa + |a / b| Δb) / (|b| − Δb), if b cannot be 0."""
        return self.over(bounded(other), 0.0)

    def over(self, other: Bounded, least: float) -> Bounded:
        """The quotient by something whose computed absolute value is known to be ``least`` or more."""
        quotient = self.value / other.value
        nearest = np.maximum(np.abs(other.value) - other.error, least)
        return self._result(quotient, (self.error + np.abs(quotient) * other.error) / nearest, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Bounded:
        return bounded(other) - self

    def __rtruediv__(self, other: Any) -> Bounded:
        return bounded(other) / self

    def __neg__(self) -> Bounded:
        return Bounded(-self.value, self.error, self.wide)

    def __abs__(self) -> Bounded:
        return Bounded(np.abs(self.value), self.error, self.wide)

    def sqrt(self) -> Bounded:
        """The error is largest on the side of 0: √a − √(a − Δa), or all of √Δa where a may be 0."""
        low = np.sqrt(np.maximum(self.value - self.error, 0))
        root = np.sqrt(self.value)
        return self._result(root, np.maximum(root - low, np.sqrt(self.value + self.error) - root))

    # --- libm: errors by monotony, then a few units in the last place

    def exp(self) -> Bounded:
        """exp(a + Δ) − exp(a) = exp(a) (exp(Δ) − 1)."""
        value = np.exp(self.value)
        return self._libm("exp", value, value * np.expm1(self.error))

    def log(self) -> Bounded:
        """log a − log(a − Δ) = −log(1 − Δ / a)."""
        error = np.where(self.value > self.error, -np.log1p(-self.error / self.value), np.inf)
        return self._libm("log", np.log(self.value), error)

    def tanh(self) -> Bounded:
        """The slope 1 − tanh² is largest where a comes nearest to 0."""
        nearest = np.maximum(np.abs(self.value) - self.error, 0)
        return self._libm("tanh", np.tanh(self.value), self.error * (1 - np.tanh(nearest) ** 2))

    def pow(self, exponent: float) -> Bounded:
        """aᵖ is monotone on each side of 0: the larger distance to the powers of a ± Δa.

        A base which is not negative stays so if the power of a negative one would be no number.
        """
        value = np.power(self.value, exponent)
        low, high = self.value - self.error, self.value + self.error
        low = low if float(exponent).is_integer() else np.where(self.value >= 0, np.maximum(low, 0), low)
        error = np.maximum(*(np.abs(np.power(end, exponent) - value) for end in (low, high)))
        unbounded = (exponent < 0) & (np.abs(self.value) <= self.error)
        return self._libm("pow", value, np.where(unbounded, np.inf, np.where(self.error > 0, error, 0)))

    def sigmoid(self) -> Bounded:
        """Caffe's ``0.5 * tanh(0.5 * x) + 0.5``: tanh of a float, in double until it is assigned."""
        return ((0.5 * self).tanh().doubled() * 0.5 + 0.5).rounded()

    # --- choices

    def maximum(self, limit: float) -> Bounded:
        """max(a, limit) moves no more than a, and not at all where a stays below."""
        error = np.where(self.value + self.error <= limit, 0, self.error)
        return Bounded(np.maximum(self.value, limit), error, self.wide)

    def minimum(self, limit: float) -> Bounded:
        return -((-self).maximum(-limit))

    def max(self, axis: int, keepdims: bool = False) -> Bounded:
        """The largest moves no more than any of them."""
        return Bounded(self.value.max(axis, keepdims=keepdims), self.error.max(axis, keepdims=keepdims), self.wide)

    # --- sums

    def sum(self, axis: Axes = None, start: Bounded | None = None, keepdims: bool = False) -> Bounded:
        """Sum of n terms over axes, in any order, onto ``start``: their errors, and γₙ₋₁ Σ |aᵢ| for n - 1 additions."""
        total = self.value.sum(axis, keepdims=keepdims)
        error = self.error.sum(axis, keepdims=keepdims)
        additions = max(self.size // max(total.size, 1) - 1, 0)
        return _summed(total, error, self.largest.sum(axis, keepdims=keepdims), additions, start)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Bounded:
        """Sum with a factor 1 / n, itself rounded, on each term or on the sum: two roundings more than the sum."""
        total = self.value.sum(axis, keepdims=keepdims)
        n = self.size // max(total.size, 1)
        error = self.error.sum(axis, keepdims=keepdims) / n
        return _summed(total / n, error, self.largest.sum(axis, keepdims=keepdims) / n, n + 2)

    # --- shapes

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Bounded:
        """The same elements placed otherwise, as a function of one array places them."""
        return Bounded(change(self.value), change(self.error), self.wide)

    def reshape(self, *shape: Any) -> Bounded:
        return self.each(lambda array: array.reshape(*shape))

    def __getitem__(self, index: Any) -> Bounded:
        return self.each(lambda array: array[index])

    # --- how results are made

    def _result(self, value: np.ndarray, error: np.ndarray, other: Any = None, exact: Any = False) -> Bounded:
        wide = self.wide or (other is not None and other.wide)
        result = Bounded(value, error, wide)
        if wide:
            return result
        return Bounded(value, error + np.where(exact, 0, _half_ulp(result.largest)))

    def _libm(self, function: str, value: np.ndarray, error: np.ndarray) -> Bounded:
        if self.wide:
            return Bounded(value, error, True)
        # Recorded and our value differ by LIBM_ULPS at most; half of that for each.
        ulps = LIBM_ULPS[function] / BLAS_FACTOR
        return Bounded(value, error + ulps * 2 * _half_ulp(np.abs(value) + error))


def bounded(x: Any) -> Bounded:
    """An exact operand, unless it is bounded already."""
    return x if isinstance(x, Bounded) else Bounded(x)


def constant(x: float) -> Bounded:
    """A number that is computed in double and then assigned to a float."""
    return Bounded(x).rounded()


def where(condition: np.ndarray, a: Any, b: Any) -> Bounded:
    """Elements of ``a`` where the condition, which is exact, holds; else of ``b``."""
    a, b = bounded(a), bounded(b)
    return Bounded(np.where(condition, a.value, b.value), np.where(condition, a.error, b.error), a.wide or b.wide)


def concatenate(parts: list[Bounded], axis: int = 0) -> Bounded:
    value, error = (np.concatenate([getattr(part, name) for part in parts], axis) for name in ("value", "error"))
    return Bounded(value, error)


def bilinear(
    f: Callable[[np.ndarray, np.ndarray], np.ndarray],
    a: Bounded,
    b: Bounded,
    terms: int,
    start: Bounded | None = None,
) -> Bounded:
    """``f``: any map whose results are sums of at most ``terms`` products of an element of each, onto ``start``.

    A matrix product, a convolution, a gradient of one of them. With n = terms, products and sums are rounded n times:
    the computed result is off by γₙ f(|a|, |b|), and by f(Δa, |b|) + f(|a|, Δb) + f(Δa, Δb) through its operands.
    """
    error: Any = 0.0  # of exact operands
    if a.error.any():
        error = error + f(a.error, b.largest)
    if b.error.any():
        error = error + f(np.abs(a.value), b.error)
    return _summed(f(a.value, b.value), error, f(a.largest, b.largest), terms, start)


def dot(a: Bounded, b: Bounded, axis: Axes = None, start: Bounded | None = None) -> Bounded:
    """Sum of products over axes, onto ``start``. Products with 0 and ±1 are not rounded."""
    products = np.broadcast(a.value, b.value)
    results = np.empty(products.shape).sum(axis).size
    terms = products.size // max(results, 1)
    rounded = 0 if _is_trivial(a).all() or _is_trivial(b).all() else 1
    return bilinear(lambda x, y: np.asarray((x * y).sum(axis)), a, b, terms - 1 + rounded, start)


def _summed(value: np.ndarray, error: np.ndarray, terms: np.ndarray, n: int, start: Bounded | None = None) -> Bounded:
    """A sum with ``n`` roundings on the way, one more with a start; its terms' absolute values add up to ``terms``."""
    if start is not None and start.largest.any():
        value, error, terms, n = value + start.value, error + start.error, terms + start.largest, n + 1
    gamma = n * U / (1 - n * U)
    return Bounded(value, error + gamma * terms + np.where(terms > 0, n * SMALLEST / 2, 0))


def _is_trivial(x: Bounded) -> np.ndarray:
    return (x.error == 0) & np.isin(x.value, (-1.0, 0.0, 1.0))


def _half_ulp(largest: np.ndarray) -> np.ndarray:
    """Half the distance of single precision neighbours at numbers up to this large: what one rounding may change."""
    step = np.spacing(np.minimum(largest, LARGEST).astype(np.float32)).astype(np.float64) / 2
    return np.where(largest <= LARGEST, step, np.inf)
