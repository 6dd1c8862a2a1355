"""One layer evaluated exactly, from what a run gave it: the values and how far single precision may be off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays
from conformance.bounds.running import Bounded, bounded
from conformance.dumps import rules
from conformance.dumps.structure import LayerPlace
from refcaffe.checks import CheckError

Value = np.ndarray | Bounded | None
"""An array that a run wrote; what it must have been, within a bound, where it did not; None: nobody knows."""


class Step:
    """A layer with its bottoms and parameters. Nothing is computed before it is asked for."""

    def __init__(
        self, place: LayerPlace, bottoms: Sequence[Value], params: Sequence[Value], seen: Sequence[np.ndarray | None]
    ) -> None:
        """``seen``: the tops that the run wrote, which alone know what was drawn."""
        self.place, self.bottoms, self.params, self.seen = place, list(bottoms), list(params), seen
        self.reason = ""  # why nothing can be told, where nothing can

    def same_as(self, other: Step) -> bool:
        """Whether the other run gave the layer the same numbers, so that what holds for one holds for both."""
        pairs = [*zip(self.bottoms, other.bottoms), *zip(self.params, other.params)]
        return all(a is b or (isinstance(a, np.ndarray) and same_numbers(a, b)) for a, b in pairs)

    def release(self) -> None:
        """Give back memory; what is asked for later is computed once more."""
        for made in ("_formula", "tops", "_exact_bottoms", "_exact_params"):
            self.__dict__.pop(made, None)

    @cached_property
    def _formula(self) -> Formula | None:
        found = rules.find(self.place.type, self.place.param)
        if found is None:
            self.reason = f"no formula for layer type {self.place.type}"
        elif any(value is None for value in (*self.bottoms, *self.params)):
            self.reason = "what it was computed from is not known"
        else:
            made = found(self.place.param, self.place.train, Path())
            if isinstance(made, rules.Dropout):
                made.seen = self.seen[0]
            return made
        return None

    @cached_property
    def tops(self) -> Arrays | None:
        """What the tops are exactly; None if it cannot be told."""
        formula = self._formula
        if formula is None:
            return None
        self._exact_bottoms = [bounded(value) for value in self.bottoms]
        self._exact_params = [bounded(value) for value in self.params]
        try:
            with np.errstate(all="ignore"):
                return formula.forward(self._exact_bottoms, self._exact_params)
        # Whatever a formula makes of arrays that do not fit together is no verdict about them.
        except (CheckError, OSError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            self.reason = f"cannot be computed from these bottoms: {error}"
            return None

    def diffs(
        self, tops: Sequence[Value], top_diffs: Sequence[Value], bottoms: Sequence[Value], wanted: list[bool]
    ) -> MaybeArrays:
        """What the bottoms' diffs are exactly, given data and diffs as they are now; None where it cannot be told."""
        unknown: MaybeArrays = [None] * len(self.bottoms)
        exact = self._now(tops, top_diffs, bottoms)
        if exact is None:
            return unknown
        formula, tops_now, top_diffs_now, bottoms_now = exact
        try:
            with np.errstate(all="ignore"):
                return formula.backward(tops_now, top_diffs_now, bottoms_now, wanted)
        except (CheckError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            self.reason = f"no formula for this gradient: {error}"
            return unknown

    def param_diffs(
        self, tops: Sequence[Value], top_diffs: Sequence[Value], bottoms: Sequence[Value], old: Sequence[Value]
    ) -> MaybeArrays:
        """What the parameters' diffs are exactly, added to the old ones."""
        exact = self._now(tops, top_diffs, bottoms)
        if exact is None or any(value is None for value in old):
            return [None] * len(old)
        formula, _, top_diffs_now, bottoms_now = exact
        try:
            with np.errstate(all="ignore"):
                old_diffs = [bounded(value) for value in old]
                return list(formula.param_diffs(top_diffs_now, bottoms_now, self._exact_params, old_diffs))
        except (CheckError, ValueError, IndexError, TypeError, NotImplementedError) as error:
            self.reason = f"no formula for this gradient: {error}"
            return [None] * len(old)

    def _now(
        self, tops: Sequence[Value], top_diffs: Sequence[Value], bottoms: Sequence[Value]
    ) -> tuple[Formula, Arrays, Arrays, Arrays] | None:
        if self.tops is None or self._formula is None:
            return None
        if any(value is None for value in (*tops, *top_diffs, *bottoms)):
            self.reason = "what it was computed from is not known"
            return None
        made = ([bounded(value) for value in values] for values in (tops, top_diffs, bottoms))
        return self._formula, next(made), next(made), next(made)


@dataclass(frozen=True)
class Near:
    """How near an array came to what its run should have: error, bound and index at the element nearest to its bound.

    ``unknown``: how many elements have no bound.
    """

    error: float = 0.0
    bound: float = 0.0
    index: tuple[int, ...] = ()
    unknown: int = 0

    @property
    def ratio(self) -> float:
        """Error over bound: at most 1 if the array is right."""
        if self.error == 0:
            return 0.0
        return self.error / self.bound if self.bound > 0 else float("inf")


def near(array: np.ndarray, exact: Bounded) -> Near | None:
    """Compare an array with what it should be; None if no element has a bound."""
    values = array.astype(np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(values - exact.value)
        same = (values == exact.value) | (np.isnan(values) & np.isnan(exact.value))
        error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
        bound = np.array(exact.error)
        # An infinity that is expected has no finite distance to anything: any bound is one of nothing.
        unknown = np.isinf(bound) & (error > 0)
        ratio = np.where(error == 0, 0, np.where(unknown, -1, error / bound))
    if values.size == 0:
        return Near()
    if unknown.all():
        return None
    at = np.unravel_index(int(np.argmax(ratio)), values.shape)
    index = tuple(int(i) for i in at)
    return Near(float(error[at]), float(bound[at]), index, int(unknown.sum()))


def same_numbers(a: np.ndarray, b: object) -> bool:
    """Whether two arrays have equal shapes and numbers; NaN equals NaN."""
    return (
        isinstance(b, np.ndarray) and a.shape == b.shape and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    )
