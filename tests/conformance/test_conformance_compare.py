"""Each exactness class must be able to fail, and must not fail for the wrong reason."""

from __future__ import annotations

import numpy as np
import pytest

from conformance.compare import (
    BLAS_FACTOR,
    LIBM_ULPS,
    blas_bound,
    compare_arrays,
    compare_values,
    libm_bound,
    same_message,
)

ONE = np.ones((2, 3), np.float32)


def moved(array: np.ndarray, index: tuple[int, ...], ulps: int) -> np.ndarray:
    array = array.copy()
    for _ in range(abs(ulps)):
        array[index] = np.nextafter(array[index], array.dtype.type(np.sign(ulps) * np.inf))
    return array


def test_bitwise_equal_arrays_have_no_error() -> None:
    near = compare_arrays("a", ONE, ONE.copy())
    assert near.difference is None and near.error == near.ratio == 0


def test_bitwise_catches_one_ulp_and_says_where() -> None:
    near = compare_arrays("a", ONE, moved(ONE, (1, 2), 1))
    assert near.difference is not None and near.ratio == np.inf
    assert str(near.difference) == "a[1, 2]: recorded 1.0, got 1.0000001"
    assert near.error == pytest.approx(2.0**-23)


def test_first_of_several_differences_is_shown_and_all_are_counted() -> None:
    got = ONE.copy()
    got[0, 1] = 2
    got[1, 0] = 5
    near = compare_arrays("a", ONE, got)
    assert near.difference is not None and near.difference.where == "a[0, 1] (2 of 6 elements differ)"


def test_signs_of_zeros_matter_only_where_asked() -> None:
    zero, minus = np.zeros(1, np.float32), -np.zeros(1, np.float32)
    assert compare_arrays("a", zero, minus).difference is not None
    assert compare_arrays("a", zero, minus, signed_zeros=False).difference is None


def test_nan_equals_nan_and_nothing_else() -> None:
    nan = np.array([np.nan, 1], np.float32)
    other_nan = nan.view(np.uint32).copy()
    other_nan[0] ^= 0x80000001  # another sign and payload
    assert compare_arrays("a", nan, other_nan.view(np.float32)).difference is None
    assert compare_arrays("a", nan, ONE[0, :2], bound=1e9).difference is not None


def test_infinities_must_be_equal_whatever_the_bound() -> None:
    inf = np.array([np.inf], np.float32)
    assert compare_arrays("a", inf, inf.copy(), "blas", 1.0).difference is None
    for other in (-np.inf, np.finfo(np.float32).max):
        assert compare_arrays("a", inf, np.array([other], np.float32), "blas", 1e300).difference is not None


@pytest.mark.parametrize("got", [np.ones(6, np.float32), np.ones((2, 3), np.float64), np.float32(1)])
def test_shape_and_type_are_compared(got: np.ndarray) -> None:
    near = compare_arrays("a", ONE, got, "blas", 1.0)
    assert near.difference is not None and near.difference.recorded == "float32[2, 3]"


def test_scalars_and_empty_arrays() -> None:
    assert compare_arrays("a", np.array(2.5), 2.5).difference is None
    assert compare_arrays("a", np.array(2.5), 2.25).difference is not None
    assert compare_arrays("a", np.empty((0, 2)), np.empty((0, 2)), "blas", np.empty((0, 2))).difference is None


@pytest.mark.parametrize("function", [*LIBM_ULPS, "a function without an entry"])
def test_libm_allows_its_ulps_and_no_more(function: str) -> None:
    values = np.array([3.7, -1e-3, 2e20], np.float32)
    ulps = LIBM_ULPS.get(function, LIBM_ULPS["default"])
    bound = libm_bound(function, values)
    for i in range(values.size):
        assert compare_arrays("a", values, moved(values, (i,), ulps), "libm", bound).difference is None
        near = compare_arrays("a", values, moved(values, (i,), ulps + 1), "libm", bound)
        assert near.difference is not None and near.ratio > 1


def test_libm_bound_of_special_values_is_finite() -> None:
    assert np.isfinite(libm_bound("exp", np.array([0, np.inf, np.nan, -np.inf], np.float32))).all()


def test_blas_bound_holds_for_sums_in_any_order_and_catches_a_lost_term() -> None:
    random = np.random.RandomState(1)
    a, b = (random.randn(500, 64).astype(np.float32) for _ in range(2))
    products = a * b
    one = np.zeros(500, np.float32)
    for column in products.T:
        one += column
    other = products[:, ::-1].reshape(500, 8, 8).sum(2, dtype=np.float32).sum(1, dtype=np.float32)
    bound = blas_bound(64, abs(products).sum(1))
    near = compare_arrays("dot", one, other, "blas", bound)
    assert near.difference is None and 0 < near.ratio <= 1
    lost = other.copy()
    lost[7] -= products[7].max()
    caught = compare_arrays("dot", one, lost, "blas", bound)
    assert caught.difference is not None and caught.difference.where == "dot[7]"


def test_blas_bound_is_the_stated_one() -> None:
    assert blas_bound(10, [3.0])[0] == BLAS_FACTOR * 10 * 2.0**-24 * 3
    assert blas_bound(10, 3.0, np.float64) == BLAS_FACTOR * 10 * 2.0**-53 * 3


def test_largest_error_is_the_one_nearest_to_its_bound() -> None:
    recorded, got = np.array([1.0, 100.0]), np.array([1.5, 101.0])
    near = compare_arrays("a", recorded, got, "blas", np.array([0.6, 10.0]))
    assert (near.error, near.bound) == (0.5, 0.6) and near.difference is None


@pytest.mark.parametrize(
    ("recorded", "got", "shown"),
    [
        ({"a": [1, {"b": "x"}]}, {"a": [1, {"b": "y"}]}, "at.a[1].b: recorded 'x', got 'y'"),
        ([1, 2, 3], [1, 2], "at[2]: recorded 3, got nothing (2 entries)"),
        ([], [["d_free", "d0", 0]], "at[0]: recorded nothing (0 entries), got ['d_free', 'd0', 0]"),
        ({"a": 1}, {}, "at.a: recorded 1, got '…'"),
        ({}, {"a": None}, "at.a: recorded '…', got None"),
        (0, None, "at: recorded 0, got None"),
        ([1], 1, "at: recorded [1], got 1"),
        (float("nan"), 0.0, "at: recorded nan, got 0.0"),
    ],
)
def test_values_first_difference_with_its_path(recorded: object, got: object, shown: str) -> None:
    assert str(compare_values("at", recorded, got)) == shown


def test_equal_values() -> None:
    recorded = {"x": [1, 2.5, None, "s", float("nan"), -0.0], "y": {}}
    got = {"y": {}, "x": (1.0, 2.5, None, "s", float("nan"), 0.0)}
    assert compare_values("at", recorded, got) is None


@pytest.mark.parametrize(
    ("recorded", "got", "same"),
    [
        ("Check failed: data_ ", "Check failed: data_", True),
        ("Check failed: data_", "Check failed: diff_", False),
        ("Check failed: n > 0 (0 vs. 0) too few", "Check failed: count > zero (0 vs. 0) too few", True),
        ("Check failed: n > 0 (0 vs. 0) too few", "Check failed: n is zero: too few", True),
        ("Check failed: n > 0 (0 vs. 0) too few", "it has too few", False),
        ("Check failed: n > 0 (0 vs. 0) too few", "Check failed: n > 0 (0 vs. 0) too many", False),
        ("Check failed: n > 0 (0 vs. 0)", "Check failed: m > 0 (0 vs. 0)", False),
        ("Unknown layer type: X", "Unknown layer type: Y", False),
        ("at <PTR> here", "at 0x7ffdeadbeef0 here", True),
        ("too few", "Check failed: n > 0 (0 vs. 0) too few", False),
    ],
)
def test_messages(recorded: str, got: str, same: bool) -> None:
    assert same_message(recorded, got) is same
