"""The bounds of a recorded ``layer`` case: its steps carried out with its layer type's formula."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from google.protobuf import text_format

from conformance.bounds import convolution, elementwise, linear, losses, normalization, recurrent  # noqa: F401
from conformance.bounds.formula import Arrays, Formula, find
from conformance.bounds.running import Bounded, bounded, dot
from conformance.cases import Case, CaseError
from conformance.outcome import Unsupported


def bounds_of(case: Case) -> dict[str, Bounded]:
    """By name, what the recorded arrays of class ``libm`` and ``blas`` are exactly, and how far off they may be.

    Derived from what is given alone, but for arrays of class ``bitwise``, which are what they are. Where no bound can
    be derived (the computed number may be infinite, or a quotient's divisor 0), it is infinite. A diff that no
    gradient is written to has none.
    """
    replay = _Replay(case)
    with np.errstate(all="ignore"):  # infinities and NaNs come out as bounds that allow nothing
        for s, step in enumerate(case.given["steps"]):
            replay.step = f"s{s}"
            _STEPS[step](replay)
    return replay.bounds


def _layer_of(case: Case) -> Any:
    from refcaffe.proto import caffe_pb2

    path = case.folder / "layer.prototxt"
    try:
        net = text_format.Parse(path.read_text(encoding="utf-8"), caffe_pb2.NetParameter())
    except (OSError, text_format.ParseError) as error:
        raise CaseError(f"{path}: cannot be read: {error}") from error
    return net.layer[0]


class _Replay:
    """Blobs by name, with data and diff, and parameters with theirs, as FORMAT-layer.md says they change."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.layer = layer = _layer_of(case)
        given, recorded = case.given, case.recorded
        self.bottoms = [bottom["name"] for bottom in given["bottoms"]]
        self.tops = given["tops"] + ["(anonymous)"] * (len(recorded.values["loss_weights"]) - len(given["tops"]))
        self.weights = recorded.values["loss_weights"]
        self.in_diffs = [0.0 if self._takes_over_diff(top) else weight for top, weight in zip(self.tops, self.weights)]
        shapes = {bottom["name"]: bottom["shape"] for bottom in given["bottoms"]} | recorded.values["tops"]
        self.data = {name: bounded(np.zeros(shape)) for name, shape in shapes.items()}
        self.diff = dict(self.data)
        for top, weight in zip(self.tops, self.in_diffs):
            self.diff[top] = bounded(np.full(shapes.get(top, ()), weight, np.float32))
        self.capacity = {name: prod(shape) for name, shape in shapes.items()}
        given_params = [case.given_arrays[f"param.{i}"] for i in range(given["params"])]
        self.params: Arrays = [
            bounded(given_params[i] if given_params else case.recorded_array(f"setup.param.{i}"))
            for i in range(len(recorded.values.get("params", [])))
        ]
        self.param_diffs: Arrays = [bounded(np.zeros(param.shape)) for param in self.params]
        self.step = ""
        self.bounds: dict[str, Bounded] = {}
        known = find(layer.type)
        test = layer.phase == 1 if layer.HasField("phase") else given["phase"] == "TEST"
        self.formula: Formula | None = known(layer, not test, case.folder) if known else None

    def forward(self) -> None:
        self.data |= self._given("data")
        old_params = list(self.params)
        tops = self.formula.forward([self.data[name] for name in self.bottoms], self.params) if self.formula else []
        for i, name in enumerate(self.tops):
            self.data[name] = self._known(f"data.{name}", "data", tops[i] if tops else None)
            self._resize(name, i)
        for i, (old, new) in enumerate(zip(old_params, self.params)):
            if new is not old:
                self.params[i] = self._known(f"param.{i}", "param", new)
        if any(self.weights):
            weighted = [name for name, weight in zip(self.tops, self.weights) if weight]
            losses = [dot(self.data[name], self.diff[name]) for name in weighted]
            self._known("loss", "loss", sum(losses[1:], losses[0]))

    def clear_param_diffs(self) -> None:
        self.param_diffs = [bounded(np.zeros(param.shape)) for param in self.params]

    def backward(self) -> None:
        self.diff |= self._given("diff")
        if self.formula is not None:
            self._gradients(self.formula)
        if not self._of_interest("diff"):
            recorded = {name: self.case.recorded.arrays.get(f"{self.step}.diff.{name}") for name in self.bottoms}
            self.diff |= {name: bounded(array) for name, array in recorded.items() if array is not None}

    def _gradients(self, formula: Formula) -> None:
        tops = [self.data[name] for name in self.tops]
        top_diffs = [self.diff[name] for name in self.tops]
        bottoms = [self.data[name] for name in self.bottoms]
        if self._of_interest("param_diff"):
            new = formula.param_diffs(top_diffs, bottoms, self.params, self.param_diffs)
            wanted = [formula.params_always or self._learns(i) for i in range(len(self.params))]
            self.param_diffs = [new[i] if wanted[i] else old for i, old in enumerate(self.param_diffs)]
            for i, param_diff in enumerate(self.param_diffs):
                self._known(f"param_diff.{i}", "param_diff", param_diff)
        if self._of_interest("diff"):
            wanted = [self._propagates(i) for i in range(len(self.bottoms))]
            diffs = formula.backward(tops, top_diffs, bottoms, wanted)
            for i, name in enumerate(self.bottoms):
                diff = diffs[i] if wanted[i] or formula.bottoms_always else None
                if diff is not None:
                    self.diff[name] = self._known(f"diff.{name}", "diff", diff)

    def _given(self, what: str) -> dict[str, Bounded]:
        prefix = f"{self.step}.{what}."
        arrays = self.case.given_arrays
        return {key.removeprefix(prefix): bounded(arrays[key]) for key in arrays if key.startswith(prefix)}

    def _known(self, name: str, group: str, value: Bounded | None) -> Bounded:
        """What an array is: as recorded if it is bitwise, else the formula's ``value``, which is noted."""
        key = f"{self.step}.{name}"
        recorded = self.case.recorded.arrays
        if key in recorded and not self._of_interest(group):
            return bounded(recorded[key])
        if value is None:
            raise Unsupported(f"no error bound is derived for layer type {self.layer.type}")
        if key in recorded:
            self.bounds[key] = value
        return value

    def _of_interest(self, group: str) -> bool:
        return self.case.exactness(group) != "bitwise"

    def _resize(self, top: str, i: int) -> None:
        """A top's diff is its loss weight, written at set-up, until it needs more memory than it ever had."""
        shape = self.data[top].shape
        if prod(shape) > self.capacity.get(top, 1):
            self.capacity[top], self.in_diffs[i] = prod(shape), 0.0
        if self.diff[top].shape != shape:
            self.diff[top] = bounded(np.full(shape, self.in_diffs[i], np.float32))

    def _takes_over_diff(self, top: str) -> bool:
        """Whether the top has the diff of a Parameter layer, which replaces its top's by its own in forward."""
        bottoms, types = self.case.given["bottoms"], ("Concat", "Slice")
        shares = self.layer.type == "Reshape" or (self.layer.type in types and len(self.tops) == len(bottoms) == 1)
        of_parameter = {bottom["name"] for bottom in bottoms if bottom["source"] == "Parameter"}
        return top in of_parameter or (shares and bottoms[0]["name"] in of_parameter)

    def _propagates(self, i: int) -> bool:
        if self.case.given["force_backward"]:
            return True
        flags = self.layer.propagate_down
        return flags[i] if len(flags) else self.case.given["bottoms"][i]["source"] == "Parameter"

    def _learns(self, i: int) -> bool:
        if self.case.given["force_backward"] or i >= len(self.layer.param):
            return True
        return self.layer.param[i].lr_mult != 0


_STEPS: dict[str, Callable[[_Replay], None]] = {
    "forward": _Replay.forward,
    "clear_param_diffs": _Replay.clear_param_diffs,
    "backward": _Replay.backward,
}
