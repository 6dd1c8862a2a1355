"""The nets that are measured, as refcaffe runs them, and what they cost at least."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import refcaffe
from refcaffe.kernels.parallel import for_each, num_threads, one_blas_thread
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_text

MODELS = Path(__file__).parent / "models"
NAMES = ["alexnet", "caffenet", "googlenet", "vgg16", "resnet50", "squeezenet", "lenet", "cifar_quick"]
PASSES = ["forward", "both"]  # both: forward and backward


def path_of(name: str) -> Path:
    """The definition of a net, by its name or as a file of somebody else's."""
    return Path(name) if name.endswith(".prototxt") else MODELS / f"{name}.prototxt"


def definition(name: str, batch: int | None = None) -> Any:
    """A net's definition, for TRAIN; ``batch`` images instead of as many as it says."""
    param = read_text(str(path_of(name)), caffe_pb2.NetParameter)
    param.state.phase = refcaffe.TRAIN
    for layer in param.layer:
        if layer.type == "Input" and batch is not None:
            layer.input_param.shape[0].dim[0] = batch
    return param


def load(name: str, batch: int | None = None) -> Net:
    """A net with random inputs."""
    net = Net(definition(name, batch))
    rng = np.random.default_rng(1)
    data, *labels = (net.blobs[name].data for name in net.inputs)
    data[...] = rng.standard_normal(data.shape)
    for label in labels:
        label[...] = rng.integers(0, 10, label.shape)
    return net


def runner(net: Net, what: str) -> Callable[[], Any]:
    """A function that runs a pass: ``forward``, or ``both`` with the gradients cleared before."""
    last = len(net.layers) - 1

    def both() -> None:
        net.clear_param_diffs()
        net.forward_from_to(0, last)
        net.backward_from_to(last, 0)

    return both if what == "both" else lambda: net.forward_from_to(0, last)


def products(net: Net) -> int:
    """Multiplications in the matrix products of a forward pass."""
    total = 0
    for layer, bottom, top in zip(net.layers, net.bottoms, net.tops, strict=True):
        if layer.type == "Convolution":
            total += top[0].count * prod(layer.blobs[0].shape[1:])
        elif layer.type == "InnerProduct":
            total += top[0].count * bottom[0].count // top[0].shape[0]
    return total


def product_speed(size: int = 1024, rounds: int = 8) -> float:
    """Multiplications per second of the machine's ``sgemm``, on as many threads as refcaffe uses."""
    threads = num_threads()
    factors = [np.ones((size, size), np.float32) for _ in range(threads)]
    results = [np.empty((size, size), np.float32) for _ in range(threads)]
    best = float("inf")
    with one_blas_thread:
        for _ in range(rounds):
            start = time.perf_counter()
            for_each(threads, lambda i: np.matmul(factors[i], factors[i], out=results[i]))
            best = min(best, time.perf_counter() - start)
    return threads * size**3 / best


def layer_list(net: Net) -> list[dict[str, Any]]:
    """The net for another framework: every layer with its type, bottoms, tops, shapes of parameters and numbers."""
    listed = []
    for layer, bottoms, tops in zip(net.layers, net.bottom_ids, net.top_ids, strict=True):
        entry = {
            "name": layer.param.name,
            "type": layer.type,
            "bottoms": [net.blob_names[i] for i in bottoms],
            "tops": [net.blob_names[i] for i in tops],
            "top_shapes": [list(net.all_blobs[i].shape) for i in tops],
            "params": [list(blob.shape) for blob in layer.blobs],
            **_numbers(layer),
        }
        listed.append(entry)
    return listed


def _numbers(layer: Any) -> dict[str, Any]:
    if layer.type == "Convolution":
        window = layer.window
        return {"stride": window.stride, "pad": window.pad, "dilation": window.dilation, "group": layer.group}
    if layer.type == "Pooling":
        names = {0: "max", 1: "average"}
        return {"pool": names[layer.pool], "kernel": layer.kernel, "stride": layer.stride, "pad": layer.pad}
    if layer.type == "LRN":
        return {"size": layer.size, "alpha": float(layer.alpha), "beta": float(layer.beta), "k": float(layer.k)}
    if layer.type == "Dropout":
        return {"ratio": layer.param.dropout_param.dropout_ratio}
    if layer.type == "SoftmaxWithLoss":
        return {"weight": layer.loss(0)}
    return {}
