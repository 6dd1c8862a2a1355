"""Numerical gradients against a layer's own, in double precision."""

import numpy as np

from refcaffe.blob import Blob
from refcaffe.layers import create
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text

STEP = 1e-6


def make_layer(text, bottoms):
    """A layer of a definition ``type: "…" …``, set up on bottoms of the given arrays; with its bottoms and tops."""
    param = parse_text(f'layer {{ name: "layer" {text} }}', caffe_pb2.NetParameter, "test").layer[0]
    param.phase = caffe_pb2.TRAIN
    layer = create(param, np.float64)
    blobs = [Blob(array.shape, np.float64) for array in bottoms]
    for blob, array in zip(blobs, bottoms, strict=True):
        blob.data[...] = array
    tops = [Blob(dtype=np.float64) for _ in range(max(len(param.top), layer.exact_tops, layer.min_tops, 0))]
    layer.set_up(blobs, tops)
    for i in range(len(layer.blobs)):
        layer.set_param_propagate_down(i, True)
    return layer, blobs, tops


def check_gradient(text, bottoms, wanted=None, before=lambda layer: None, tolerance=1e-6, parameters=True):
    """Compare every derivative of a random weighting of the tops.

    ``wanted``: which bottoms get a gradient (default: all). ``before`` is called before each forward pass (to seed, or
    to put a state back). ``parameters``: whether their gradients are compared too.
    """
    rng = np.random.default_rng(1)
    wanted = [True] * len(bottoms) if wanted is None else wanted
    layer, blobs, tops = make_layer(text, bottoms)
    for blob in layer.blobs:
        blob.data[...] = rng.normal(size=blob.shape) * 0.5
    is_loss = any(layer.loss_weights)

    def forward():
        before(layer)
        loss = layer.forward(blobs, tops)
        if is_loss:
            return float(loss)
        return sum(float((top.cpu_data() * weight).sum()) for top, weight in zip(tops, weights, strict=True))

    layer.forward(blobs, tops)
    weights = [rng.normal(size=top.shape) for top in tops]
    forward()
    for blob in layer.blobs:
        blob.diff[...] = 0
    if not is_loss:
        for top, weight in zip(tops, weights, strict=True):
            top.diff[...] = weight
    layer.backward(tops, wanted, blobs)
    places = [(f"bottom {i}", blob) for i, blob in enumerate(blobs) if wanted[i]]
    places += [(f"param {i}", blob) for i, blob in enumerate(layer.blobs) if parameters]
    gradients = {name: blob.diff.copy() for name, blob in places}
    assert places, "nothing to check"
    for name, blob in places:
        numerical = np.empty(blob.shape)
        for index in np.ndindex(*blob.shape):
            value = blob.data[index]
            blob.data[index] = value + STEP
            above = forward()
            blob.data[index] = value - STEP
            below = forward()
            blob.data[index] = value
            numerical[index] = (above - below) / (2 * STEP)
        scale = max(1.0, np.abs(numerical).max(initial=0))
        error = np.abs(gradients[name] - numerical).max(initial=0) / scale
        assert error < tolerance, f"{name}: off by {error:.2g}"
