"""PyTorch's side of the measurement: eager mode, as one would write the net by hand.

Started with any Python that has torch. Reads lines: first a JSON object with ``layers`` and ``threads``, then
``forward`` or ``both``; answers each of these with the seconds it took.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from typing import Any

import torch
from timing import mean_seconds
from torch.nn import functional as F


class TorchNet:
    """The layers of a list, run one after the other. A Scale behind a BatchNorm becomes its affine part."""

    def __init__(self, layers: list[dict[str, Any]]) -> None:
        self.layers = layers
        self.params = [[self._parameter(shape) for shape in layer["params"]] for layer in layers]
        self.inputs = {}
        for layer in layers:
            if layer["type"] == "Input":
                shape = layer["top_shapes"][0]
                is_label = len(shape) == 1
                self.inputs[layer["tops"][0]] = torch.randint(0, 10, shape) if is_label else torch.randn(shape)

    @staticmethod
    def _parameter(shape: list[int]) -> torch.Tensor:
        fan_in = max(1, int(torch.tensor(shape[1:]).prod())) if len(shape) > 1 else 1
        return (torch.randn(shape) / fan_in**0.5).requires_grad_()

    def forward(self) -> torch.Tensor:
        blobs, total = dict(self.inputs), torch.zeros(())
        for i, layer in enumerate(self.layers):
            if layer["type"] == "Input":
                continue
            given = [blobs[name] for name in layer["bottoms"]]
            if layer["type"] == "Split":
                for name in layer["tops"]:
                    blobs[name] = given[0]
            elif layer["type"] == "SoftmaxWithLoss":
                total = total + layer["weight"] * F.cross_entropy(given[0].flatten(1), given[1])
            elif layer["type"] == "BatchNorm":
                weight, bias = self.params[i + 1]
                blobs[layer["tops"][0]] = F.batch_norm(given[0], None, None, weight, bias, training=True)
            elif layer["type"] != "Scale":
                blobs[layer["tops"][0]] = self._apply(layer, given, self.params[i])
        return total

    def _apply(self, layer: dict[str, Any], given: list[torch.Tensor], params: list[torch.Tensor]) -> torch.Tensor:
        kind, x = layer["type"], given[0]
        if kind == "Convolution":
            weight, bias = (*params, None)[:2]
            return F.conv2d(x, weight, bias, layer["stride"], layer["pad"], layer["dilation"], layer["group"])
        if kind == "InnerProduct":
            return F.linear(x.flatten(1), *params)
        if kind == "ReLU":
            return F.relu(x, inplace=True)
        if kind == "Pooling":
            pool = F.max_pool2d if layer["pool"] == "max" else F.avg_pool2d
            return pool(x, layer["kernel"], layer["stride"], layer["pad"], ceil_mode=True)
        if kind == "LRN":
            return F.local_response_norm(x, layer["size"], layer["alpha"], layer["beta"], layer["k"])
        if kind == "Dropout":
            return F.dropout(x, layer["ratio"], training=True)
        if kind == "Concat":
            return torch.cat(given, 1)
        if kind == "Eltwise":
            return given[0] + given[1]
        raise ValueError(f"no layer type {kind} here")

    def run(self, what: str) -> None:
        if what == "forward":
            with torch.no_grad():
                self.forward()
            return
        for params in self.params:
            for param in params:
                param.grad = None
        self.forward().backward()


def main() -> None:
    given = json.loads(sys.stdin.readline())
    torch.set_num_threads(given["threads"])
    net = TorchNet(given["layers"])
    for line in sys.stdin:
        print(mean_seconds(partial(net.run, line.strip())), flush=True)


if __name__ == "__main__":
    main()
