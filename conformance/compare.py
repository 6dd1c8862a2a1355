"""Comparing what came out with what was recorded, by exactness class.

Every class is a bound on the difference, element by element: bitwise is a bound of nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

UNIT = {np.dtype(np.float32): 2.0**-24, np.dtype(np.float64): 2.0**-53}
"""Unit roundoff u by type."""

BLAS_FACTOR = 2
"""The c of ``c·n·u·Σ|aᵢbᵢ|``, for the whole suite: the recorded and our sum may each be n·u·Σ|aᵢbᵢ| off."""

SUM_ULPS = 8
"""What a sum of some hundred products in random order is off, in units in the last place of the largest sum."""

OTHER_LIBRARY_ULPS = 64
"""The same for what came through several layers, each with functions and sums of another library."""

LIBM_ULPS = {
    "exp": 4,
    "log": 4,
    "pow": 4,
    "tanh": 4,
    "default": 4,
}
"""Units in the last place by which a value that went through a libm function may differ; half of it for each side.

glibc is good to 1 ulp in each of these, to 2 in tanh; other libraries come near that. Which layer uses which function,
and what else is rounded there, is in the formulas of ``conformance.bounds``.
"""


@dataclass(frozen=True)
class Difference:
    """The first place where two things differ."""

    where: str
    recorded: str
    got: str

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}, got {self.got}"


@dataclass(frozen=True)
class Closeness:
    """How near an array came: error and bound at the element that comes nearest to its bound (or exceeds it most)."""

    exactness: str
    error: float = 0.0
    bound: float = 0.0
    where: str = ""
    difference: Difference | None = None

    @property
    def ratio(self) -> float:
        """Error over bound: at most 1 if the array is right."""
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound > 0 else float("inf")


def blas_bound(n: int, terms: Any, dtype: Any = np.float32) -> np.ndarray:
    """Bound for sums of ``n`` products whose absolute values add up to ``terms`` (element by element)."""
    return np.asarray(BLAS_FACTOR * n * UNIT[np.dtype(dtype)] * np.asarray(terms, np.float64))


def sum_bound(values: np.ndarray, ulps: int = SUM_ULPS) -> float:
    """Bound for sums of some hundred terms of which nothing is known: some units in the last place of the largest."""
    largest = np.max(np.abs(values.astype(np.float64)), initial=0.0, where=np.isfinite(values))
    return ulps * float(np.spacing(np.float32(min(largest, 2.0**127))))


def libm_bound(function: str, values: np.ndarray) -> np.ndarray:
    """Bound for ``values`` that went through a function of LIBM_ULPS."""
    ulps = LIBM_ULPS.get(function, LIBM_ULPS["default"])
    finite = np.where(np.isfinite(values), values, 0).astype(values.dtype)
    return ulps * np.spacing(np.abs(finite)).astype(np.float64)


def compare_arrays(
    where: str,
    recorded: np.ndarray,
    got: Any,
    exactness: str = "bitwise",
    bound: np.ndarray | float = 0.0,
    signed_zeros: bool = True,
) -> Closeness:
    """Compare two arrays: shape, type, then elements.

    ``bound``: the largest allowed ``|recorded - got|``, an array like ``recorded`` or one number. Without one elements
    must have equal bits, but NaN equals NaN, and without ``signed_zeros`` 0 equals -0. Infinities must be equal.
    """
    got = np.asarray(got)
    if recorded.shape != got.shape or recorded.dtype != got.dtype:
        shapes = Difference(where, f"{recorded.dtype}{list(recorded.shape)}", f"{got.dtype}{list(got.shape)}")
        return Closeness(exactness, float("inf"), 0.0, where, shapes)
    flat_recorded, flat_got = np.ravel(recorded), np.ravel(got)
    same = _same_elements(flat_recorded, flat_got, signed_zeros)
    if same.all():
        return Closeness(exactness, 0.0, _smallest(bound), where)
    at = np.flatnonzero(~same)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(flat_recorded[at].astype(np.float64) - flat_got[at].astype(np.float64))
    error[np.isnan(error)] = np.inf  # a NaN or an infinity on one side only
    limit = np.broadcast_to(np.asarray(bound, np.float64), recorded.shape).ravel()[at]
    wrong = ~(error <= limit) | (limit == 0)
    ratio = np.divide(error, limit, out=np.full(at.size, np.inf), where=limit > 0)
    worst = int(np.argmax(ratio))
    difference = None
    if wrong.any():
        first = int(at[np.argmax(wrong)])
        place = ", ".join(str(int(i)) for i in np.unravel_index(first, recorded.shape))
        count = int(wrong.sum())
        more = "" if count == 1 else f" ({count} of {recorded.size} elements differ)"
        difference = Difference(f"{where}[{place}]{more}", str(flat_recorded[first]), str(flat_got[first]))
    return Closeness(exactness, float(error[worst]), float(limit[worst]), where, difference)


def _same_elements(recorded: np.ndarray, got: np.ndarray, signed_zeros: bool) -> np.ndarray:
    same = recorded == got
    if recorded.dtype.kind == "f":
        if signed_zeros:
            same &= np.signbit(recorded) == np.signbit(got)
        same |= np.isnan(recorded) & np.isnan(got)
    return same


def _smallest(bound: np.ndarray | float) -> float:
    values = np.asarray(bound, np.float64)
    return float(values.min()) if values.size else 0.0


def compare_values(where: str, recorded: Any, got: Any) -> Difference | None:
    """Compare two JSON values; the first difference with its path. NaN equals NaN, 0 equals -0, True equals 1."""
    if isinstance(recorded, dict) and isinstance(got, dict):
        for key in [*recorded, *(key for key in got if key not in recorded)]:
            if key not in got or key not in recorded:
                return Difference(f"{where}.{key}", _shown(recorded.get(key, "…")), _shown(got.get(key, "…")))
            found = compare_values(f"{where}.{key}", recorded[key], got[key])
            if found:
                return found
        return None
    if isinstance(recorded, (list, tuple)) and isinstance(got, (list, tuple)):
        for i, (a, b) in enumerate(zip(recorded, got)):
            found = compare_values(f"{where}[{i}]", a, b)
            if found:
                return found
        if len(recorded) == len(got):
            return None
        i = min(len(recorded), len(got))
        return Difference(f"{where}[{i}]", _item(recorded, i), _item(got, i))
    if recorded == got or (_is_nan(recorded) and _is_nan(got)):
        return None
    return Difference(where, _shown(recorded), _shown(got))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _item(items: list[Any] | tuple[Any, ...], i: int) -> str:
    return _shown(items[i]) if i < len(items) else f"nothing ({len(items)} entries)"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "…"


_CONDITION = re.compile(r"Check failed: (?P<condition>.*?) \((?P<values>\S* vs\. \S*?)\) ?(?P<text>.*)", re.DOTALL)


def same_message(recorded: str, got: str) -> bool:
    """Whether a refusal says the same by the rule of FORMAT-error.md: the condition of a check need not be repeated.

    ``Check failed: a == b (1 vs. 2) text`` equals any failed check that ends with that text. Where there is no text
    to compare, or no values that would mark where the condition ends, the whole message must be equal.
    Addresses are ``<PTR>`` in a recording.
    """
    recorded, got = recorded.rstrip(), re.sub(r"0x[0-9a-f]+", "<PTR>", got.rstrip())
    if re.sub(r"0x[0-9a-f]+", "<PTR>", recorded) == got:
        return True
    check = _CONDITION.fullmatch(recorded)
    if check is None or not check["text"]:
        return False
    return re.fullmatch(f"Check failed: .+ {re.escape(check['text'])}", got, re.DOTALL) is not None
