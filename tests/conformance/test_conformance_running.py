"""Running error analysis: results in floats are within the bounds, whatever the operands' errors and the order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.bounds.running import Bounded, bilinear, bounded, concatenate, constant, dot, where
from conformance.compare import BLAS_FACTOR, LIBM_ULPS, UNIT

U = UNIT[np.dtype(np.float32)]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with np.errstate(all="ignore"):
        yield


def operand(random: np.random.RandomState, shape: tuple[int, ...] = (40,), positive: bool = False) -> Bounded:
    """Numbers of all sizes, some exact, some 0 or ±1, some so uncertain that they may be 0."""
    value = (random.randn(*shape) * 10.0 ** random.randint(-3, 4, shape)).astype(np.float32).astype(float)
    value = np.where(random.rand(*shape) < 0.2, random.randint(-1, 2, shape), value)
    value = (np.abs(value) + 1e-3).astype(np.float32).astype(float) if positive else value
    error = np.abs(value) * random.choice([0, 1e-7, 1e-3], shape) + random.choice([0, 0, 1e-2], shape) * (not positive)
    return Bounded(value, error)


def computed(x: Bounded, random: np.random.RandomState) -> np.ndarray:
    """Floats that a computation might have in place of ``x``: anywhere in the bounds, often at their ends."""
    at = np.clip(random.uniform(-1.5, 1.5, x.shape), -1, 1)
    floats = (x.value + at * x.error).astype(np.float32)
    inside = np.abs(floats.astype(float) - x.value) <= x.error
    return np.where(inside, floats, x.value.astype(np.float32))


def check(result: Bounded, got: np.ndarray) -> None:
    error = np.abs(np.asarray(got, np.float64) - result.value)
    assert (error <= result.error).all() or np.isinf(result.error[~(error <= result.error)]).all()


def in_double(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda *floats: np.asarray(function(*(x.astype(np.float64) for x in floats))).astype(np.float32)


Operation = tuple[Callable[..., Bounded], Callable[..., np.ndarray], bool]

OPERATIONS: dict[str, Operation] = {
    "+": (lambda a, b: a + b, lambda a, b: a + b, False),
    "-": (lambda a, b: a - b, lambda a, b: a - b, False),
    "1 -": (lambda a, b: 1.0 - a, lambda a, b: np.float32(1) - a, False),
    "×": (lambda a, b: a * b, lambda a, b: a * b, False),
    "÷": (lambda a, b: a / b, lambda a, b: a / b, False),
    "1 ÷": (lambda a, b: 1.0 / a, lambda a, b: np.float32(1) / a, False),
    "-x": (lambda a, b: -a, lambda a, b: -a, False),
    "|x|": (lambda a, b: abs(a), lambda a, b: abs(a), False),
    "√": (lambda a, b: a.sqrt(), lambda a, b: np.sqrt(a), True),
    "exp": (lambda a, b: a.minimum(80).exp(), lambda a, b: in_double(np.exp)(np.minimum(a, np.float32(80))), False),
    "log": (lambda a, b: a.log(), lambda a, b: in_double(np.log)(a), True),
    "tanh": (lambda a, b: a.tanh(), lambda a, b: in_double(np.tanh)(a), False),
    "pow -0.75": (lambda a, b: a.pow(-0.75), lambda a, b: in_double(lambda x: x**-0.75)(a), True),
    "pow 3": (lambda a, b: a.pow(3), lambda a, b: in_double(lambda x: x**3)(a), False),
    "max 0": (lambda a, b: a.maximum(0), lambda a, b: np.maximum(a, np.float32(0)), False),
    "min 0": (lambda a, b: a.minimum(0), lambda a, b: np.minimum(a, np.float32(0)), False),
    "largest": (lambda a, b: a.max(0), lambda a, b: a.max(0), False),
    "double": (lambda a, b: (a.doubled() * b + 1.0).rounded(), in_double(lambda a, b: a * b + 1.0), False),
}


@given(seed=st.integers(0, 2**31))
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_computed_result_is_within_its_bound(name: str, seed: int) -> None:
    random = np.random.RandomState(seed)
    analysed, in_floats, positive = OPERATIONS[name]
    a, b = operand(random, positive=positive), operand(random, positive=positive)
    check(analysed(a, b), in_floats(computed(a, random), computed(b, random)))


def test_a_choice_takes_the_bounds_with_it() -> None:
    a, b = Bounded([1.0, 2.0], [0.1, 0.2]), Bounded([3.0, 4.0], [0.3, 0.4])
    chosen = where(np.array([True, False]), a, b)
    assert chosen.value.tolist() == [1, 4] and chosen.error.tolist() == [0.1, 0.4]


def summed(terms: np.ndarray, random: np.random.RandomState) -> np.ndarray:
    """Sums over the first axis, in some order and in some blocks."""
    parts = [np.add.reduce(part, 0, dtype=np.float32) for part in np.array_split(random.permutation(terms), 3)]
    total = np.zeros(terms.shape[1:], np.float32)
    for part in parts:
        total = total + part
    return total


@given(seed=st.integers(0, 2**31), n=st.integers(3, 60))
def test_sums_and_products_in_any_order_are_within_their_bounds(seed: int, n: int) -> None:
    random = np.random.RandomState(seed)
    a, b, start = operand(random, (n, 5)), operand(random, (n, 5)), operand(random, (5,))
    x, y, s = (computed(array, random) for array in (a, b, start))
    check(a.sum(0), summed(x, random))
    check(a.sum(0, start), summed(np.concatenate([x, s[None]]), random))
    check(a.mean(0), summed(x, random) * np.float32(1 / n))
    check(a.mean(0), summed(x * np.float32(1 / n), random))
    check(dot(a, b, 0), summed(x * y, random))
    check(dot(a, b, 0, start), summed(np.concatenate([s[None], x * y]), random))
    check(dot(a, b), np.asarray(summed((x * y).reshape(-1, 1), random)[0]))
    check(bilinear(np.matmul, a.each(np.transpose), b, n), summed(x[:, :, None] * y[:, None, :], random))


def test_one_rounding_of_exact_operands_is_half_a_unit_in_the_last_place() -> None:
    a, b = bounded([1.5, 3e-39, 1e10]), bounded([0.3, 1e-45, 3.0])
    for result in (a + b, a * b, a / 7.0, a.sqrt()):
        half_ulps = np.spacing(np.abs(result.value).astype(np.float32)).astype(float) / 2
        assert (result.error == half_ulps).all()


def test_nothing_is_rounded_where_the_result_is_known() -> None:
    a = Bounded([1.1, -2.2], 0.0)
    for result in (a * 0.0, a * -1.0, a + 0.0, -a, a.maximum(0), a[::-1], concatenate([a, a]), a.doubled() * 3.0):
        assert not result.error.any()
    assert not dot(bounded([1.0]), bounded([0.7])).error.any()
    assert not bounded([0.5, 0.25]).reshape(2, 1).sum(1).error.any()


def test_libm_functions_have_half_of_their_ulps_on_each_side() -> None:
    x = bounded([0.7])
    for name in ("exp", "log", "tanh"):
        result = getattr(x, name)()
        ulp = np.spacing(np.abs(result.value).astype(np.float32)).astype(float)
        assert result.error == LIBM_ULPS[name] / BLAS_FACTOR * ulp


def test_a_sum_has_the_textbook_bound() -> None:
    terms = bounded(np.full((1000, 1), 0.1))
    n = 999
    assert terms.sum(0).error == pytest.approx(n * U / (1 - n * U) * 100, rel=1e-12)


@pytest.mark.parametrize(
    "result",
    [
        lambda: Bounded(1.0) / Bounded(0.1, 0.1),
        lambda: Bounded(0.1, 0.2).log(),
        lambda: Bounded(0.1, 0.2).pow(-1),
        lambda: Bounded(3e38) * 2.0,
        lambda: Bounded(100.0).exp(),
        lambda: Bounded(np.inf) - Bounded(np.inf),
        lambda: Bounded(0.0) / 0.0,
    ],
)
def test_where_a_result_may_be_anything_there_is_no_bound(result: Callable[[], Bounded]) -> None:
    assert np.isposinf(result().error)


def test_a_divisor_that_is_known_not_to_be_small_keeps_the_quotient_bounded() -> None:
    noise = Bounded(0.0, 1e-8)
    assert np.isinf((noise / (noise + 1e-9)).error)
    assert noise.over(noise + 1e-9, 1e-9).error == pytest.approx(10, rel=1e-2)


def test_constants_are_rounded_once() -> None:
    assert constant(0.5).error == U / 2 * 0.5 * 2 and constant(1 / 3).error >= abs(np.float32(1 / 3) - 1 / 3)
