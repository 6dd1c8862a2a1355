"""How far results of BLAS may be off in a whole net or a training run: a multiple of how far the original itself moves.

A recording says how much each array changed when the original ran with two other sets of BLAS kernels (its *spread*:
the larger of two samples of the rounding noise that a net makes of another order of summation). An engine's result is
one more sample of that noise.

SPREAD_FACTOR: the spread is the extreme of two samples over all elements of the array, so it is about the noise's own
width; in an array of a few elements it may be a fraction of that by luck, and 8 times leaves room for it.
SPREAD_ULPS: values are multiples of an ulp, and so are spreads. Where a rounding that goes the other way makes the
whole difference, all three runs may agree by luck; 8 ulps of the array's largest value are what a sum of some hundred
products is off in another order.
Both hold for the whole suite. In the 2,500 arrays of the first nets and runs recorded, refcaffe's error was within 3
times the spread in 99 of 100 (the worst, of a few elements, 12 times), within 2 ulps where the original did not move,
and nowhere more than half the bound (three quarters in sums of digests). A report shows the largest error beside its
bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.cases import Case
from conformance.compare import blas_bound

SPREAD_FACTOR = 8
SPREAD_ULPS = 8


def ulp(values: Any) -> np.ndarray:
    """The unit in the last place of ``values`` in single precision, element by element."""
    return np.spacing(np.abs(np.asarray(values, np.float32))).astype(np.float64)


def _largest(array: Any) -> float:
    values = np.abs(np.asarray(array, np.float64))
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


class Spread:
    """A case's spread, and the bounds that follow from it."""

    def __init__(self, case: Case) -> None:
        recorded = case.recorded.values.get("spread", {})
        self.arrays: dict[str, float] = recorded.get("arrays", {})
        self.losses: dict[str, float] = recorded.get("loss", {})
        self.digests = case.array_file("spread.npz")

    def bound(self, name: str, recorded: Any) -> float:
        """For all elements of an array."""
        return SPREAD_FACTOR * self.arrays.get(name, 0.0) + SPREAD_ULPS * float(ulp(_largest(recorded)))

    def loss_bound(self, name: str, recorded: float) -> float:
        """For ``recorded.loss[name]``."""
        return SPREAD_FACTOR * self.losses.get(name, 0.0) + SPREAD_ULPS * float(ulp(recorded))

    def relative(self, arrays: dict[str, np.ndarray]) -> float:
        """For numbers in log lines, which are losses and scores: relative to the number."""
        moved = [
            self.arrays[name] / (_largest(array) or 1.0)
            for name, array in arrays.items()
            if name.endswith("loss") and name in self.arrays
        ]
        return SPREAD_FACTOR * max(moved, default=0.0) + SPREAD_ULPS * 2.0**-23

    def digest_bounds(
        self, prefix: str, counts: list[int], recorded: dict[str, np.ndarray], bitwise: bool
    ) -> dict[str, np.ndarray]:
        """For ``stats``, ``first`` and ``strided`` of a digest: of its elements, and of the sums over all elements.

        What all elements have in common moves a sum in proportion; being a single number, its share is taken from
        whichever of the three sums moved most. What each has for itself adds up as its square root.
        """
        stats = recorded["stats"]
        count, sum_abs, squares = np.array(counts, np.float64), stats[:, 1], stats[:, 2]
        element, share, floor = (np.zeros(len(stats)) for _ in range(3))
        if not bitwise:
            spreads = [self.digests.get(f"{prefix}/{key}") for key in ("stats", "first", "strided")]
            moved, *shown = (np.zeros_like(stats) if spread is None else spread for spread in spreads)
            seen = np.concatenate([*shown, moved[:, 3:]], 1)
            floor = SPREAD_ULPS * ulp(np.abs(stats[:, 3:]).max(1, initial=0))
            element = SPREAD_FACTOR * np.nanmax(seen, 1, initial=0) + floor
            scale = np.stack([sum_abs, sum_abs, 2 * squares], 1)
            share = SPREAD_FACTOR * np.divide(moved[:, :3], scale, out=np.zeros_like(scale), where=scale > 0).max(1)
        adding = blas_bound(1, count * sum_abs, np.float64)  # in double precision, in any order
        of_sum = share * sum_abs + element * np.sqrt(count) + floor * count + adding
        of_squares = 2 * (share * squares + element * np.sqrt(squares) + floor * sum_abs)
        of_squares += blas_bound(1, count * squares, np.float64)
        wide = np.broadcast_to(element[:, None], recorded["first"].shape)
        return {"stats": np.stack([of_sum, of_sum, of_squares, element, element], 1), "first": wide, "strided": wide}
