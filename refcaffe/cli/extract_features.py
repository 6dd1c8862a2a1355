"""``refcaffe extract_features``: blobs of a trained net into databases."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from refcaffe import context, data
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.cli.brew import set_device
from refcaffe.cli.progress import counting
from refcaffe.context import Mode
from refcaffe.data.db import Writer
from refcaffe.data.image_list import atoi
from refcaffe.net import Net
from refcaffe.net.read import read_net_in_state
from refcaffe.proto import caffe_pb2

_check = Checker("extract_features.cpp")
_log = logging.getLogger("refcaffe.extract_features.cpp")

_COMMIT_EVERY = 1000

_USAGE = """\
This program takes in a trained network and an input data layer, and then extract features of the input data \
produced by the net.
usage: extract_features WEIGHTS NET BLOB[,BLOB...] DB_NAME[,DB_NAME...] BATCHES DB_TYPE [CPU|GPU] [DEVICE_ID]
There is one database for each blob, of type lmdb or leveldb."""


def run(words: Sequence[str]) -> int:
    """See the usage. The databases appear when all of them are complete. Returns the exit status."""
    for handler in logging.getLogger("refcaffe").handlers:
        handler.setLevel(logging.ERROR)  # which is what it has to say, here
    if len(words) < 6:
        _log.error(_USAGE)
        return 1
    _choose_device(words[6:])
    weights, definition, blobs, targets, batches, backend = words[:6]
    with Net(read_net_in_state(definition, caffe_pb2.TEST)) as net:
        net.copy_from(weights)
        names, sources = blobs.split(","), targets.split(",")
        text = " the number of blob names and dataset names must be equal"
        _check.eq(len(names), len(sources), "blob_names.size() == dataset_names.size()", text)
        for name in names:
            text = f"Unknown feature blob name {name} in the network {definition}"
            _check(name in net.blobs, "feature_extraction_net->has_blob(blob_names[i])", text)
        with ExitStack() as stack:
            features = []
            for name, source in zip(names, sources, strict=True):
                _log.info("Opening dataset %s", source)
                features.append(_Feature(name, net.blobs[name], stack.enter_context(data.create(source, backend))))
            _extract(net, features, atoi(batches))
    _log.error("Successfully extracted the features!")
    return 0


def _choose_device(words: Sequence[str]) -> None:
    if not words or words[0] != "GPU":
        _log.error("Using CPU")
        context.current().mode = Mode.CPU
        return
    _log.error("Using GPU")
    device = 0
    if len(words) > 1:
        device = atoi(words[1])
        _check.ge(device, 0, "device_id >= 0")
    _log.error("Using Device_id=%d", device)
    set_device(device)


class _Feature:
    """A blob and the database that its items go to."""

    def __init__(self, name: str, blob: Blob, writer: Writer) -> None:
        self._name = name
        self._blob = blob
        self._writer = writer
        self._count = 0

    def write(self) -> None:
        """Put the blob's items, each as one record of floats."""
        blob = self._blob
        for item in blob.cpu_data().reshape(blob.num, blob.channels, blob.height, blob.width):
            self._writer.put(b"%010d" % self._count, data.serialize(item.astype(np.float32, copy=False)))
            self._count += 1
            if self._count % _COMMIT_EVERY == 0:
                self._writer.commit()
                self.say()

    def say(self) -> None:
        _log.error("Extracted features of %d query images for feature blob %s", self._count, self._name)

    def finish(self) -> None:
        self._writer.commit()
        self.say()


def _extract(net: Net, features: list[_Feature], batches: int) -> None:
    _log.error("Extracting Features")
    with counting("extracting", batches) as done:
        for _ in range(batches):
            net.forward_from_to(0, len(net.all_layers) - 1)
            for feature in features:
                feature.write()
            done()
    for feature in features:
        feature.finish()
