"""A Data layer of its own, and databases whose pixels agree with their labels."""

import time

import numpy as np

from refcaffe import data
from refcaffe.blob import Blob
from refcaffe.layers.data import Data
from refcaffe.proto import caffe_pb2, io

SHAPE = (1, 2, 3)


def image(label, shape=SHAPE):
    return np.full(shape, label % 256, np.uint8)


def value(label, shape=SHAPE):
    return data.serialize(image(label, shape), label)


def records(count, replaced=None):
    return [(b"%08d" % i, (replaced or {}).get(i, value(i))) for i in range(count)]


class Running:
    """A Data layer with its tops, closed at the end of the ``with`` block."""

    def __init__(self, source, batch_size=2, phase="TRAIN", tops=2, transform="", prefetch=4, dtype=np.float32):
        text = (
            f'name: "records" type: "Data" phase: {phase} transform_param {{ {transform} }} '
            f'data_param {{ source: "{source}" backend: LMDB batch_size: {batch_size} prefetch: {prefetch} }}'
        )
        self.layer = Data(io.parse_text(text, caffe_pb2.LayerParameter, "layer"), dtype)
        self.tops = [Blob(dtype=dtype) for _ in range(tops)]
        self.layer.set_up([], self.tops)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.layer.close()

    def forward(self):
        """The labels of the next batch, whose pixels must agree with them."""
        self.layer.forward([], self.tops)
        pixels, labels = (top.cpu_data() for top in self.tops)
        assert (pixels.reshape(len(labels), -1) == labels[:, np.newaxis]).all()
        return labels.astype(int).tolist()


def at_rest(queue, size):
    deadline = time.monotonic() + 5
    while queue.size() != size and time.monotonic() < deadline:
        time.sleep(0.005)
    return queue.size() == size
