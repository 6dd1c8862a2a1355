"""The net that two runs have in common: which layer takes and gives which blobs, and which gradients are computed."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

from google.protobuf import text_format

from conformance.dumps.reading import Dump, DumpError
from refcaffe.checks import CheckError
from refcaffe.layers.base import make
from refcaffe.net import backward_flags
from refcaffe.proto import caffe_pb2

TRAIN = caffe_pb2.TRAIN


class LayerPlace:
    """Layer ``k``: its LayerParameter, and ``occurrence``: how many layers of its name come before it."""

    def __init__(self, k: int, param: Any, entry: dict[str, Any], occurrence: int) -> None:
        self.k = k
        self.param = param
        self.name: str = param.name
        self.type: str = param.type
        self.occurrence = occurrence
        self.bottoms: list[str] = list(entry["bottoms"])
        self.tops: list[str] = list(entry["tops"])
        self.params = len(entry.get("param", ()))
        self.train = param.phase == TRAIN

    def weight(self, j: int) -> float:
        """The loss weight of top ``j``."""
        return self.param.loss_weight[j] if j < len(self.param.loss_weight) else 0.0

    def param_key(self, i: int) -> Any:
        """What stands for the memory of parameter ``i``: shared ones have one name."""
        specs = self.param.param
        return specs[i].name if i < len(specs) and specs[i].name else (self.k, i)


class Structure:
    """The layers in order, split layers included, and the flags of a backward pass."""

    def __init__(self, dump: Dump) -> None:
        """From a dump that has the net's definition. DumpError if the two do not fit."""
        net = caffe_pb2.NetParameter()
        try:
            # A Caffe with layers of its own has fields that nobody else knows.
            text_format.Parse(dump.definition() or "", net, allow_unknown_field=True)
        except text_format.ParseError as error:
            raise DumpError(f"{dump.path / 'net.prototxt'}: {error}") from error
        if [layer.name for layer in net.layer] != [entry["name"] for entry in dump.layers]:
            raise DumpError(f"{dump.path}: the layers of index.json are not those of the net's definition")
        seen: Counter[str] = Counter()
        self.layers: list[LayerPlace] = []
        for k, (param, entry) in enumerate(zip(net.layer, dump.layers)):
            self.layers.append(LayerPlace(k, param, entry, seen[param.name]))
            seen[param.name] += 1
        self.final_top = {top: (layer.k, j) for layer in self.layers for j, top in enumerate(layer.tops)}
        self.last_reader = {bottom: layer.k for layer in self.layers for bottom in layer.bottoms}
        self.first_reader = {
            bottom: (layer.k, j) for layer in reversed(self.layers) for j, bottom in enumerate(layer.bottoms)
        }
        self._flags = _backward_flags(self.layers, bool(dump.index.get("force_backward")))

    def runs_backward(self, k: int) -> bool:
        return self._flags.layer_need_backward[k]

    def propagates(self, k: int) -> list[bool]:
        """Which bottoms of layer ``k`` get a gradient."""
        return self._flags.bottom_need_backward[k]

    def learns(self, k: int, i: int) -> bool:
        """Whether parameter ``i`` of layer ``k`` gets a gradient."""
        return self._flags.all_layers[k].learns(i)


class _Flagged:
    """What the flags of a net ask a layer."""

    def __init__(self, place: LayerPlace) -> None:
        self.place = place
        self.blobs = [None] * place.params
        self.forced: set[int] = set()

    def loss(self, j: int) -> float:
        return self.place.weight(j)

    def learns(self, i: int) -> bool:
        specs = self.place.param.param
        return i in self.forced or i >= len(specs) or specs[i].lr_mult != 0

    def allow_force_backward(self, j: int) -> bool:
        try:
            return make(self.place.param).allow_force_backward(j)
        except CheckError:  # of a type that only another Caffe has
            return True

    def set_param_propagate_down(self, i: int, value: bool) -> None:
        self.forced.add(i)


def _backward_flags(layers: list[LayerPlace], forced: bool) -> Any:
    """The flags as a net finds them, by refcaffe's own rules."""
    names = list(dict.fromkeys(top for layer in layers for top in layer.tops))
    ids = {name: i for i, name in enumerate(names)}
    net: Any = SimpleNamespace(
        all_layers=[_Flagged(layer) for layer in layers],
        layer_names=[layer.name for layer in layers],
        blob_names=names,
        bottom_ids=[[ids[name] for name in layer.bottoms] for layer in layers],
        top_ids=[[ids[name] for name in layer.tops] for layer in layers],
        layer_need_backward=[],
        bottom_need_backward=[],
        blob_need_backward=[False] * len(names),
    )
    for k, layer in enumerate(layers):
        needs = [net.blob_need_backward[i] for i in net.bottom_ids[k]]
        said = list(layer.param.propagate_down)
        need = any(needs) or any(net.all_layers[k].learns(i) for i in range(layer.params))
        net.bottom_need_backward.append(said or needs)
        net.layer_need_backward.append(need)
        for i in net.top_ids[k] if need else ():
            net.blob_need_backward[i] = True
    backward_flags.prune(net)
    if forced:
        backward_flags.force(net)
    return net
