"""How far numbers of kind ``gpumode`` may be off.

A single layer's are bounded by the running error analysis of ``conformance.bounds``, with a device's formulas where
they differ. In nets and solvers roundings of one layer go through all that follow: there the bound is a multiple of how
far the numbers move when parameters are moved by a unit in the last place, as in ``conformance.operations.spread``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.bounds.device import bounds_of
from conformance.cases import Case, Recording
from conformance.compare import BLAS_FACTOR, libm_bound
from conformance.operations.spread import SPREAD_FACTOR, SPREAD_ULPS, ulp

Bound = np.ndarray | float
Path = tuple[Any, ...]  # of an entry of case.json: keys, and places in lists


class Limits:
    """The bounds of one case. ``shaken``: the same run with moved parameters, any number of them."""

    def __init__(self, case: Case, shaken: list[Recording]) -> None:
        self.case = case
        self.shaken = shaken
        self._bounds: dict[str, Any] | None = None

    def of(self, name: str, recorded: np.ndarray, got: Recording) -> tuple[str, Callable[[], Bound]]:
        """The class of an array, and a function for its bound."""
        exactness = self._exactness(name)
        if exactness == "bitwise":
            return exactness, lambda: 0.0
        if self.case.given["run"] == "layer":
            return exactness, lambda: self._derived(name, recorded)
        moved = [_distance(side.arrays.get(name), got.arrays[name]) for side in self.shaken]
        return exactness, lambda: _spread(moved, recorded)

    def of_number(self, path: Path, recorded: Any, got: Recording) -> tuple[str, Callable[[], Bound]]:
        """The class of a computed number of case.json, and a function for its bound."""
        value, run = np.float32(recorded), self.case.given["run"]
        if run == "blob":
            return "bitwise", lambda: 0.0
        if run == "layer":
            return self._exactness("loss"), lambda: self._derived("_".join(map(str, path)), value)
        moved = [_distance(_find(side.values, path), _find(got.values, path)) for side in self.shaken]
        return "blas", lambda: _spread(moved, value)

    def _exactness(self, name: str) -> str:
        stated = self.case.recorded.values.get("exactness", "bitwise")
        if isinstance(stated, str):
            return stated
        # What is computed from rounded numbers is not known to the bit, even if it is only copied.
        word = stated["backward" if name.endswith("_diff") else "forward"]
        return stated["forward"] if word == "bitwise" else word

    def _derived(self, name: str, recorded: Any) -> Bound:
        if self._bounds is None:
            self._bounds = bounds_of(self.case)
        # Where nothing can be derived, as around infinities, a value may be some units in its last place off.
        default = libm_bound("default", np.asarray(recorded))
        if name not in self._bounds:
            return default
        error = self._bounds[name].error
        return np.where(np.isfinite(error), BLAS_FACTOR * error, default)


def moved_parameters(case: Case, number: int) -> Case:
    """The case with every given parameter moved by a unit in its last place, up or down as ``number`` decides."""
    signs = np.random.Generator(np.random.PCG64(number))
    arrays = {
        name: np.nextafter(array, signs.choice(np.array([-np.inf, np.inf], array.dtype), array.shape))
        if name.startswith("p:")
        else array
        for name, array in case.given_arrays.items()
    }
    return case.with_given(arrays)


def _find(values: Any, path: Path) -> Any:
    for key in path:
        values = values[key]
    return values


def _distance(a: Any, b: Any) -> float:
    """The largest difference of two arrays or numbers; without limit if they have no elements in common."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    if a.shape != b.shape:
        return float("inf")
    distance = np.abs(a - b)
    return float(np.max(distance, initial=0.0, where=np.isfinite(distance)))


def _spread(moved: list[float], recorded: Any) -> float:
    values = np.abs(np.asarray(recorded, np.float64))
    largest = float(np.max(values, initial=0.0, where=np.isfinite(values)))
    return SPREAD_FACTOR * max(moved, default=0.0) + SPREAD_ULPS * float(ulp(largest))
