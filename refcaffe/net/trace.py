"""One pass of a net in GPU mode, layer by layer: where the newest bytes are, and what is copied."""

from __future__ import annotations

from dataclasses import dataclass

from refcaffe.blob import Blob
from refcaffe.device import Runtime
from refcaffe.net.net import Net
from refcaffe.watch import Copy, Turn, Watch, heads


@dataclass(frozen=True)
class Step:
    """What one layer did, in order; ``heads`` are those of all blobs after it.

    ``what``: forward, backward, or another name, without a layer, for what lies between.
    """

    what: str
    layer: str
    kind: str
    heads: dict[str, str]
    events: list[Copy | Turn]

    @property
    def copies(self) -> list[Copy]:
        return [event for event in self.events if isinstance(event, Copy)]


class Tracer:
    """Runs a net's passes one layer at a time. Blobs and parameters are named as in the net, ``layer[index]``."""

    def __init__(self, net: Net, runtime: Runtime) -> None:
        self._net = net
        self._watch = Watch(runtime, turns=True)
        self.blobs: dict[str, Blob] = {}
        for name, blob in zip(net.blob_names, net.all_blobs, strict=True):
            self.blobs.setdefault(name, blob)
        for name, layer in zip(net.layer_names, net.all_layers, strict=True):
            self.blobs |= {f"{name}[{i}]": blob for i, blob in enumerate(layer.blobs)}
        self._watch.name(self.blobs)
        self._steps: list[Step] = []

    def run(self) -> list[Step]:
        """Write inputs (zeros), then a pass forward, and back where there is something to learn."""
        net, layers = self._net, range(len(self._net.all_layers))
        self._steps = []
        with self._watch:
            for blob in (net.all_blobs[i] for i in net.input_ids):
                if blob.count:
                    blob.mutable_cpu_data().fill(0)
            self._note("inputs")
            for i in layers:
                net.forward_from_to(i, i)
                self._note("forward", i)
            if any(net.layer_need_backward):
                net.clear_param_diffs()
                self._note("clear gradients")
            for i in reversed(layers):
                if net.layer_need_backward[i]:
                    net.backward_from_to(i, i)
                    self._note("backward", i)
        return self._steps

    def _note(self, what: str, layer: int | None = None) -> None:
        name, kind = "", ""
        if layer is not None:
            name, kind = self._net.layer_names[layer], self._net.all_layers[layer].type
        now = {name: heads(blob) for name, blob in self.blobs.items()}
        self._steps.append(Step(what, name, kind, now, self._watch.take()))
