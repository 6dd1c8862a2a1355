"""The bounds of a recorded ``gpumode`` case of one layer: its iterations carried out with its type's formula."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from google.protobuf import text_format

from conformance.bounds import convolution, elementwise, linear, losses, normalization, recurrent  # noqa: F401
from conformance.bounds.formula import Arrays, Formula, MaybeArrays, find
from conformance.bounds.running import Bounded, bounded, dot
from conformance.cases import Case, CaseError

_LOSSES = "Loss"  # how the types end that have a loss weight of their own


def bounds_of(case: Case) -> dict[str, Bounded]:
    """By the names of recorded arrays (and ``i0_loss`` …) what they are exactly, and how far off they may be.

    What no formula is known for is not there.
    """
    layer = _layer_of(case)
    known = find(layer.type)
    if known is None:
        return {}
    formula = known(layer, case.given["phase"] == "TRAIN", case.folder)
    formula.device = True
    bounds: dict[str, Bounded] = {}
    given = case.given_arrays
    params: Arrays = [bounded(given[f"param{i}"]) for i in range(len(case.recorded.values.get("params", [])))]
    with np.errstate(all="ignore"):  # infinities and NaNs come out as bounds that allow nothing
        for number in range(case.given.get("iterations", 2)):
            bounds |= {f"i{number}_{name}": bound for name, bound in _iteration(case, formula, params)}
    return bounds


def _layer_of(case: Case) -> Any:
    from refcaffe.proto import caffe_pb2

    path = case.folder / "layer.prototxt"
    try:
        return text_format.Parse(path.read_text(encoding="utf-8"), caffe_pb2.LayerParameter())
    except (OSError, text_format.ParseError) as error:
        raise CaseError(f"{path}: cannot be read: {error}") from error


def _iteration(case: Case, formula: Formula, params: Arrays) -> list[tuple[str, Bounded]]:
    given, wanted = case.given_arrays, case.given["propagate_down"]
    bottoms = [bounded(given[f"bottom{i}"]) for i in range(len(case.given["bottoms"]))]
    before = list(params)
    shown = len(case.recorded.values["tops"])
    tops = _asked(lambda: formula.forward(bottoms, params), [])[:shown]
    found = [(f"top{i}", top) for i, top in enumerate(tops)]
    found += [(f"param{i}", param) for i, param in enumerate(params) if param is not before[i]]
    weights = _weights(formula.layer, shown)
    if tops and any(weights):
        losses = [dot(top, bounded(np.full(top.shape, weight))) for top, weight in zip(tops, weights) if weight]
        found.append(("loss", sum(losses[1:], losses[0])))
    if not (tops and case.given.get("backward", True)):
        return found
    top_diffs = [
        bounded(given[f"top{i}_diff"]) if f"top{i}_diff" in given else bounded(np.full(top.shape, weights[i]))
        for i, top in enumerate(tops)
    ]
    zeros = [bounded(np.zeros(param.shape)) for param in params]
    diffs = _asked(lambda: formula.param_diffs(top_diffs, bottoms, params, zeros), [])
    found += [(f"param{i}_diff", diff) for i, diff in enumerate(diffs)]
    if case.given.get("in_place"):
        bottoms[0] = tops[0]
    down: MaybeArrays = _asked(lambda: formula.backward(tops, top_diffs, bottoms, wanted), [])
    return found + [(f"bottom{i}_diff", diff) for i, diff in enumerate(down) if diff is not None]


def _asked(action: Callable[[], list[Any]], otherwise: list[Any]) -> list[Any]:
    """What a formula says; ``otherwise`` if it says nothing about this."""
    try:
        return action()
    except NotImplementedError:
        return otherwise


def _weights(layer: Any, tops: int) -> list[float]:
    """The loss weights of the tops."""
    weights = list(layer.loss_weight) or ([1.0] if layer.type.endswith(_LOSSES) else [])
    return weights + [0.0] * (tops - len(weights))
