"""Going through two runs of a net, layer by layer.

Each run is held against itself: from the bottoms that *it* had, what should the layer's tops have been, and how far
may rounding in single precision have moved them? So rounding that piles up over the layers accuses nobody, and a layer
that computes something else is found where it stands, whatever was wrong before it. Blobs that a run did not write are
computed from those it did, and carry the bound of their rounding along.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.bounds.formula import MaybeArrays
from conformance.dumps import rules
from conformance.dumps.reading import Dump
from conformance.dumps.steps import Near, Step, Value, near, same_numbers
from conformance.dumps.structure import LayerPlace, Structure

EQUAL, WITHIN, PARTS, MISSING, UNKNOWN = "equal", "within", "PARTS", "missing", "unknown"


@dataclass(frozen=True)
class Verdict:
    """One array of both runs. ``a`` and ``b``: how near each came to what it should be, None where nobody can tell.

    ``status``: ``equal`` bit for bit; ``within`` the bounds; ``PARTS``; ``missing`` in one run; ``unknown``: they
    differ, and there is no bound. ``drift``: the largest difference, relative to the largest number of A.
    """

    layer: str
    type: str
    what: str
    name: str
    status: str
    drift: float | None = None
    a: Near | None = None
    b: Near | None = None
    note: str = ""


@dataclass
class Comparison:
    """Everything that was compared, forward and then backward, and names that only B has."""

    verdicts: list[Verdict]
    only_in_b: list[str]

    @property
    def first(self) -> Verdict | None:
        """The first place where the runs part."""
        return next((verdict for verdict in self.verdicts if verdict.status == PARTS), None)

    def count(self, status: str) -> int:
        return sum(verdict.status == status for verdict in self.verdicts)


class Run:
    """One of the two runs: what it wrote, and what is known of its blobs as the walk goes on."""

    def __init__(self, dump: Dump, structure: Structure) -> None:
        self.dump, self.structure = dump, structure
        self.data: dict[str, Value] = {}
        self.diff: dict[str, Value] = {}
        self.param: dict[Any, Value] = {}
        self.param_diff: dict[Any, Value] = {}
        self.steps: list[Step] = []

    def wrote(self, place: LayerPlace, kind: str, i: int) -> np.ndarray | None:
        """Array ``i`` of a kind of a layer; by the blob's name if it is that blob's last and the layer is not named."""
        if self.dump.has_layer(place.name, place.occurrence):
            return self.dump.of_layer(place.name, place.occurrence, kind, i)
        at = (place.k, i)
        if kind == "data" and self.structure.final_top[place.tops[i]] == at:
            return self.dump.of_blob(place.tops[i])
        if kind == "diff" and self.structure.first_reader[place.bottoms[i]] == at:
            return self.dump.of_blob(f"{place.bottoms[i]}.diff")
        return None


def compare(a: Dump, b: Dump) -> Comparison:
    """Compare two runs; A has the net's definition. DumpError if a file of them cannot be read."""
    return _Walk(a, b).result()


class _Walk:
    def __init__(self, a: Dump, b: Dump) -> None:
        self.structure = Structure(a)
        self.a, self.b = Run(a, self.structure), Run(b, self.structure)
        self.verdicts: list[Verdict] = []

    def result(self) -> Comparison:
        both = self.a.dump.has_diffs and self.b.dump.has_diffs
        for place in self.structure.layers:
            self._params(place)
            self._forward(place)
            self._release(place, both)
        if both:
            self._start_diffs()
            for place in reversed(self.structure.layers):
                if self.structure.runs_backward(place.k):
                    self._backward(place)
                    self._release(place, both)
        known = {blob for place in self.structure.layers for blob in (*place.bottoms, *place.tops)}
        return Comparison(self.verdicts, sorted(self.b.dump.blob_names - known))

    def _release(self, place: LayerPlace, needed: bool) -> None:
        """Keep no more than the backward pass, if there is one, will ask for: whole nets do not fit into memory."""
        for run in (self.a, self.b):
            run.steps[place.k].release()
            if not needed:
                run.steps[place.k].bottoms = run.steps[place.k].params = []
                for i in range(place.params):
                    run.param[place.param_key(i)] = None
                for name in {*place.bottoms, *place.tops}:
                    if self.structure.last_reader.get(name, place.k) <= place.k:
                        run.data.pop(name, None)

    # --- forward

    def _params(self, place: LayerPlace) -> None:
        for i in range(place.params):
            wrote = self.a.wrote(place, "param", i), self.b.wrote(place, "param", i)
            key = place.param_key(i)
            if wrote[0] is None or wrote[1] is None:  # the runs have them in common, unless somebody says otherwise
                self.a.param[key] = self.b.param[key] = wrote[1] if wrote[0] is None else wrote[0]
                continue
            self.a.param[key] = wrote[0]
            self.b.param[key] = self._judge(place, "param", f"{place.name}[{i}]", wrote, lambda: (None, None))[1]

    def _forward(self, place: LayerPlace) -> None:
        wrote = [[run.wrote(place, "data", j) for j in range(len(place.tops))] for run in (self.a, self.b)]
        for run, tops in zip((self.a, self.b), wrote):
            params = [run.param[place.param_key(i)] for i in range(place.params)]
            run.steps.append(Step(place, [run.data.get(name) for name in place.bottoms], params, tops))
        step_a, step_b = self.a.steps[-1], self.b.steps[-1]
        drawn = place.type == "Dropout" and place.train
        if not drawn and step_b.same_as(step_a):
            self.b.steps[-1] = step_b = step_a
        for j, name in enumerate(place.tops):
            pair = wrote[0][j], wrote[1][j]
            if place.type in rules.SOURCES:
                kept = self._judge(place, "data", name, pair, lambda: (None, None), "the runs were given other inputs")
            else:
                kept = self._judge(
                    place, "data", name, pair, lambda j=j: (_item(step_a.tops, j), _item(step_b.tops, j))
                )
                if drawn and all(array is not None for array in pair):
                    self._draws(place, name, *pair)
            self.a.data[name], self.b.data[name] = kept

    def _draws(self, place: LayerPlace, name: str, a: Any, b: Any) -> None:
        if a.shape == b.shape and ((a != 0) != (b != 0)).any():
            self.verdicts.append(Verdict(place.name, place.type, "draws", name, PARTS, note="other random numbers"))

    # --- backward

    def _start_diffs(self) -> None:
        """A weighted top's diff is its weight, others begin as they were given, or as 0."""
        given_a = self.a.dump.given_diffs()
        for run, given in ((self.a, given_a), (self.b, given_a | self.b.dump.given_diffs())):
            for place in self.structure.layers:
                for j, name in enumerate(place.tops):
                    data = run.data.get(name)
                    if data is not None:
                        run.diff[name] = np.full(data.shape, place.weight(j))
            run.diff |= given

    def _backward(self, place: LayerPlace) -> None:
        wanted = self.structure.propagates(place.k)
        learns = [self.structure.learns(place.k, i) for i in range(place.params)]
        keys = [place.param_key(i) for i in range(place.params)]
        exact_diffs, exact_params = [], []
        for run in (self.a, self.b):
            now = (
                [run.data.get(name) for name in place.tops],
                [run.diff.get(name) for name in place.tops],
                [run.data.get(name) for name in place.bottoms],
            )
            step = run.steps[place.k]
            old = [run.param_diff.get(key, _zeros(run.param[key])) for key in keys]
            exact_diffs.append(_Later(lambda step=step, now=now: step.diffs(*now, wanted)))
            exact_params.append(_Later(lambda step=step, now=now, old=old: step.param_diffs(*now, old)))
        for i, key in enumerate(keys):
            if learns[i]:
                pair = self.a.wrote(place, "param_diff", i), self.b.wrote(place, "param_diff", i)
                name = f"{place.name}[{i}].diff"
                exact = lambda i=i: (exact_params[0][i], exact_params[1][i])  # noqa: E731
                self.a.param_diff[key], self.b.param_diff[key] = self._judge(place, "param diff", name, pair, exact)
        for j, name in enumerate(place.bottoms):
            if wanted[j]:
                pair = self.a.wrote(place, "diff", j), self.b.wrote(place, "diff", j)
                exact = lambda j=j: (exact_diffs[0][j], exact_diffs[1][j])  # noqa: E731
                self.a.diff[name], self.b.diff[name] = self._judge(place, "diff", f"{name}.diff", pair, exact)

    # --- one array

    def _judge(
        self, place: LayerPlace, what: str, name: str, wrote: Sequence[Any], exact: Any, note: str = ""
    ) -> tuple[Value, Value]:
        """Note a verdict; what is known of the array afterwards, in each run."""
        a, b = wrote
        if a is None or b is None:
            return self._judge_missing(place, what, name, (a, b), exact)
        b, shape_note = _fitting(b, a)
        if b is None:
            self._note(place, what, name, PARTS, note=shape_note)
            return a, a if what == "param" or place.type in rules.SOURCES else exact()[1]
        if same_numbers(a, b):
            self._note(place, what, name, EQUAL, 0.0, note=shape_note)
            return a, b
        drift = _drift(a, b)
        if what == "param" or note:
            self._note(place, what, name, PARTS, drift, note=note or "the runs have other parameters")
            return a, b
        found = [None if e is None or e.shape != x.shape else near(x, e) for x, e in zip((a, b), exact())]
        wrong = [one is not None and one.ratio > 1 for one in found]
        status = PARTS if any(wrong) else UNKNOWN if None in found else WITHIN
        if status is UNKNOWN:
            shape_note = self._reason(place) or "no bound"
        self._note(place, what, name, status, drift, found[0], found[1], shape_note)
        return a, b

    def _judge_missing(
        self, place: LayerPlace, what: str, name: str, wrote: Sequence[Any], exact: Any
    ) -> tuple[Value, Value]:
        lacking = " and ".join(side for side, array in zip("AB", wrote) if array is None)
        self._note(place, what, name, MISSING, note=f"not in {lacking}")
        if place.type in rules.SOURCES:
            either = wrote[0] if wrote[0] is not None else wrote[1]
            return either, either
        kept = [array if array is not None else e for array, e in zip(wrote, exact())]
        return kept[0], kept[1]

    def _reason(self, place: LayerPlace) -> str:
        return next((run.steps[place.k].reason for run in (self.a, self.b) if run.steps[place.k].reason), "")

    def _note(
        self,
        place: LayerPlace,
        what: str,
        name: str,
        status: str,
        drift: float | None = None,
        a: Near | None = None,
        b: Near | None = None,
        note: str = "",
    ) -> None:
        self.verdicts.append(Verdict(place.name, place.type, what, name, status, drift, a, b, note))


class _Later:
    """A list that is made when an element of it is asked for."""

    def __init__(self, make: Any) -> None:
        self.make = make
        self.made: MaybeArrays | None = None

    def __getitem__(self, i: int) -> Any:
        if self.made is None:
            self.made = self.make()
        return _item(self.made, i)


def _item(values: Any, i: int) -> Any:
    return values[i] if values is not None and i < len(values) else None


def _zeros(param: Value) -> Value:
    return None if param is None else np.zeros(param.shape)


def _fitting(b: np.ndarray, a: np.ndarray) -> tuple[np.ndarray | None, str]:
    """B in the shape of A, if they differ in axes of length 1 only, and what is to be said about it."""
    if a.shape == b.shape:
        return b, ""
    shapes = f"shape {list(a.shape)} in A, {list(b.shape)} in B"
    if [n for n in a.shape if n != 1] == [n for n in b.shape if n != 1]:
        return b.reshape(a.shape), shapes
    return None, shapes


def _drift(a: np.ndarray, b: np.ndarray) -> float:
    with np.errstate(all="ignore"):
        distance = np.abs(a.astype(np.float64) - b.astype(np.float64))
        distance = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0, distance)
        largest = float(np.abs(a).max(initial=0.0, where=np.isfinite(a)))
    furthest = float(np.max(np.where(np.isnan(distance), np.inf, distance), initial=0.0))
    return furthest / largest if largest else furthest and float("inf")
