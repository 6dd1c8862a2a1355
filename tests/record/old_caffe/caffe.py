# -*- coding: utf-8 -*-
"""A pycaffe of 2015 for one net (x -> ReLU -> y), in NumPy alone, for any Python: what the recorder may count on.

It has no levels, no callbacks and no ``clear_param_diffs``, and it ends the process where original Caffe does.
"""

import os
import re
import sys

import numpy as np

TRAIN, TEST = 0, 1


def set_mode_cpu():
    pass


def set_random_seed(seed):
    pass


class _Blob(object):
    def __init__(self, shape):
        self.data = np.zeros(shape, np.float32)
        self.diff = np.zeros(shape, np.float32)

    shape = property(lambda self: self.data.shape)
    count = property(lambda self: self.data.size)


class _Layer(object):
    def __init__(self, kind):
        self.type = kind
        self.blobs = []


class Net(object):
    def __init__(self, model, phase):
        with open(model) as stream:
            text = stream.read()
        if "ReLU" not in text:
            sys.stderr.write("F0101 10:00:00.000000  1234 layer_factory.hpp:81] Check failed: no such layer\n")
            sys.stderr.write("*** Check failure stack trace: ***\n    @ 0x7f0000000000  main\n")
            sys.stderr.flush()
            os.abort()
        shape = [int(dim) for dim in re.findall(r"dim: (\d+)", text)]
        self.blobs = {"x": _Blob(shape), "y": _Blob(shape)}
        self.params = {}
        self.layers = [_Layer("Input"), _Layer("ReLU")]
        self._layer_names = ["x", "layer"]
        self._blob_loss_weights = [0.0, 0.0]

    def _top_ids(self, layer):
        return [layer]

    def _forward(self, start, end):
        x = self.blobs["x"].data
        self.blobs["y"].data[...] = np.where(x < 0, np.float32(0), x)
        return 0.0

    def _backward(self, start, end):
        x, y = self.blobs["x"], self.blobs["y"]
        x.diff[...] = y.diff * (x.data > 0)
