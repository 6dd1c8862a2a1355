"""Split layers where one blob has several readers."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from refcaffe.checks import Checker
from refcaffe.proto.strings import as_text, put, put_all

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter

_check = Checker("insert_splits.cpp")

Top = tuple[int, int]  # layer number, number among its tops


def split_layer_name(layer_name: str, blob_name: str, top_index: int) -> str:
    return f"{blob_name}_{layer_name}_{top_index}_split"


def split_blob_name(layer_name: str, blob_name: str, top_index: int, use: int) -> str:
    return f"{blob_name}_{layer_name}_{top_index}_split_{use}"


def _uses(param: NetParameter) -> tuple[dict[Top, Top], Counter[Top], dict[Top, float]]:
    """For each bottom the top it reads; for each top how often it is used, and its explicit loss weight."""
    source: dict[Top, Top] = {}
    uses: Counter[Top] = Counter()
    weight: defaultdict[Top, float] = defaultdict(float)
    producer: dict[str, Top] = {}
    for i, layer in enumerate(param.layer):
        for j, name in enumerate(layer.bottom):
            if name not in producer:
                _check.fatal(f"Unknown bottom blob '{as_text(name)}' (layer '{as_text(layer.name)}', bottom index {j})")
            source[i, j] = producer[name]
            uses[producer[name]] += 1
        for j, name in enumerate(layer.top):
            producer[name] = (i, j)
        for name, loss_weight in zip(layer.top, layer.loss_weight, strict=False):
            # A weighted top is read once more: by the loss.
            weight[producer[name]] = loss_weight
            uses[producer[name]] += loss_weight != 0
    return source, uses, weight


def _add_split(
    split: LayerParameter, layer_name: str, blob_name: str, top_index: int, uses: int, weight: float
) -> None:
    put(split, "name", split_layer_name(layer_name, blob_name, top_index))
    split.type = "Split"
    put(split, "bottom", blob_name)
    for use in range(uses):
        put(split, "top", split_blob_name(layer_name, blob_name, top_index, use))
        if weight:
            split.loss_weight.append(weight if use == 0 else 0)


def insert_splits(param: NetParameter) -> NetParameter:
    """The definition with a Split behind every top that is used more than once.

    An explicit loss weight moves to the split's first top. A bottom nobody produces is refused.
    """
    source, uses, weight = _uses(param)
    result = type(param)()
    result.CopyFrom(param)
    del result.layer[:]
    next_use: Counter[Top] = Counter()
    for i, given in enumerate(param.layer):
        layer = result.layer.add()
        layer.CopyFrom(given)
        bottoms = list(given.bottom)
        for j, name in enumerate(bottoms):
            top = source[i, j]
            if uses[top] > 1:
                bottoms[j] = split_blob_name(as_text(param.layer[top[0]].name), as_text(name), top[1], next_use[top])
                next_use[top] += 1
        put_all(layer, "bottom", bottoms)
        for j, name in enumerate(given.top):
            if uses[i, j] > 1:
                _add_split(result.layer.add(), as_text(given.name), as_text(name), j, uses[i, j], weight[i, j])
                if weight[i, j]:
                    layer.ClearField("loss_weight")
                    next_use[i, j] += 1
    return result
