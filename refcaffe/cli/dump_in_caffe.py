#!/usr/bin/env python
"""Write every blob of a forward (and backward) pass of a Caffe net as a folder of .npy files with an index.json.

Runs wherever `import caffe` works: any pycaffe from 2015 on, Python 2.7 or 3.5 and later, any NumPy. Nothing else is
needed. `refcaffe compare A B` shows where two such folders part.

    python dump_in_caffe.py --model deploy.prototxt --weights net.caffemodel --input x.npy --out dump/
"""
# One file for every Python and every pycaffe of the time, hence its old-fashioned style:
# ruff: noqa: B904, C402, UP004, UP010, UP024, UP031
# mypy: disable-error-code="no-untyped-def"

from __future__ import print_function

import argparse
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile

import numpy as np

SEED = 1701  # draws what is not given, where no --seed says otherwise


class Usage(Exception):
    """Something about the call is wrong; the message says what."""


class Folder(object):
    """The dump's folder. Equal arrays are written once."""

    def __init__(self, path):
        if os.path.isdir(path) and os.listdir(path):
            raise Usage("%s: exists, and is not empty" % path)
        self.path = path
        self.known = {}
        if not os.path.isdir(path):
            os.makedirs(path)

    def put(self, kind, name, blob_array):
        """Write an array to kind/name.npy; returns its entry in the index."""
        array = np.ascontiguousarray(blob_array).reshape(np.shape(blob_array))
        little = array.astype(array.dtype.newbyteorder("<"))
        digest = hashlib.sha256(little.tobytes()).hexdigest()
        key = (digest, array.shape, array.dtype.str)
        if key not in self.known:
            file_name = "%s/%s.npy" % (kind, re.sub(r"[^A-Za-z0-9_.-]", "_", name))
            if not os.path.isdir(os.path.join(self.path, kind)):
                os.makedirs(os.path.join(self.path, kind))
            np.save(os.path.join(self.path, kind, os.path.basename(file_name)), little)
            self.known[key] = file_name
        return {
            "file": self.known[key],
            "shape": [int(n) for n in array.shape],
            "dtype": array.dtype.name,
            "sha256": digest,
        }

    def text(self, name, text):
        with open(os.path.join(self.path, name), "wb") as stream:
            stream.write(text.encode("utf-8"))


def array_of(blob, which):
    """A blob's data or diff; one without elements has no memory to look at."""
    return getattr(blob, which) if blob.count else np.zeros(tuple(blob.shape), np.float32)


def read_inputs(arguments, inputs):
    """Arrays by blob name from NAME=FILE.npy, FILE.npy (the net's only input) and FILE.npz (an array for each name)."""
    arrays = {}
    for argument in arguments:
        name, equals, path = argument.partition("=")
        path = path if equals else argument
        try:
            loaded = np.load(path)
        except (IOError, OSError, ValueError) as error:
            raise Usage("%s: cannot be read: %s" % (path, error))
        if hasattr(loaded, "files"):
            arrays.update((key, loaded[key]) for key in loaded.files)
        elif equals:
            arrays[name] = loaded
        elif len(inputs) == 1:
            arrays[inputs[0]] = loaded
        else:
            raise Usage("%s: which input is it? Say NAME=%s with one of: %s" % (path, path, ", ".join(inputs)))
    return arrays


class Dump(object):
    """One net, one pass, layer by layer."""

    def __init__(self, caffe, options):
        self.caffe, self.options = caffe, options
        self.folder = Folder(options.out)
        seed = options.seed
        if seed is not None:
            caffe.set_random_seed(seed)
        self.random = np.random.RandomState(SEED if seed is None else seed)  # the same numbers in every NumPy
        self.net = caffe.Net(options.model, {"TRAIN": caffe.TRAIN, "TEST": caffe.TEST}[options.phase])
        if options.weights:
            self.net.copy_from(options.weights)
        self.names = list(self.net._layer_names)
        self.blob_names = list(self.net._blob_names)
        self.definition = self.saved_definition()
        self.layers = [
            {
                "name": name,
                "type": str(self.definition.layer[k].type),
                "bottoms": [self.blob_names[i] for i in self.net._bottom_ids(k)],
                "tops": [self.blob_names[i] for i in self.net._top_ids(k)],
            }
            for k, name in enumerate(self.names)
        ]

    def saved_definition(self):
        """The net's own definition after set-up, split layers and phases included: what it saves, without blobs."""
        folder = tempfile.mkdtemp()
        try:
            path = os.path.join(folder, "net.caffemodel")
            self.net.save(path)
            definition = self.caffe.proto.caffe_pb2.NetParameter()
            with open(path, "rb") as stream:
                definition.ParseFromString(stream.read())
        finally:
            shutil.rmtree(folder)
        for layer in definition.layer:
            layer.ClearField("blobs")
        return definition

    def forced(self):
        """Whether the model file has force_backward, which a net does not save."""
        from google.protobuf import text_format

        model = self.caffe.proto.caffe_pb2.NetParameter()
        with open(self.options.model, "rb") as stream:
            text_format.Merge(stream.read().decode("utf-8"), model)
        return bool(model.force_backward)

    def run(self):
        from google.protobuf import text_format

        options, net = self.options, self.net
        inputs = [self.blob_names[i] for i in net._inputs]
        given = read_inputs(options.input, inputs)
        diffs = dict((name[: -len(".diff")], given.pop(name)) for name in list(given) if name.endswith(".diff"))
        for name in list(given) + list(diffs):
            if name not in self.blob_names:
                raise Usage("the net has no blob %r; its inputs are: %s" % (name, ", ".join(inputs) or "none"))
        index = {
            "format": "caffe-dump 1",
            "engine": "%s %s" % (self.caffe.__name__, getattr(self.caffe, "__version__", "of unknown version")),
            "model": options.model,
            "weights": options.weights,
            "phase": options.phase,
            "seed": options.seed,
            "gpu": options.gpu,
            "net": self.definition.name,
            "force_backward": self.forced(),
            "definition": "net.prototxt",
            "given": {"data": {}, "diff": {}},
            "layers": self.layers,
        }
        self.folder.text("net.prototxt", text_format.MessageToString(self.definition))
        self.put_all("param", lambda k: [array_of(blob, "data") for blob in net.layers[k].blobs])
        index["given"]["data"] = self.fill("data", given, inputs)
        index["loss"] = self.forward()
        if options.backward:
            weighted = [
                top
                for layer, described in zip(self.definition.layer, self.layers)
                for top, weight in zip(described["tops"], layer.loss_weight)
                if weight
            ]
            if not weighted and not index["force_backward"]:
                raise Usage("nothing to run backward: the net has no loss, and its definition no force_backward: true")
            outputs = [self.blob_names[i] for i in net._outputs]
            index["given"]["diff"] = self.fill("diff", diffs, [name for name in outputs if name not in weighted])
            self.backward()
        self.folder.text("index.json", json.dumps(index, indent=1, sort_keys=True) + "\n")

    def fill(self, which, given, wanted):
        """Put arrays into blobs; draw those of `wanted` that are not given. Returns their entries."""
        entries = {}
        for name in list(given) + [name for name in wanted if name not in given]:
            blob = self.net._blobs[self.blob_names.index(name)]
            shape = tuple(blob.shape)
            array = given[name] if name in given else self.random.uniform(-1, 1, shape)
            if which == "data" and array.shape != shape:
                blob.reshape(*array.shape)
            elif array.shape != shape:
                raise Usage("the diff of %r is %s, not %s" % (name, shape, array.shape))
            if blob.count:
                getattr(blob, which)[...] = array
            entries[name] = self.folder.put("given", "%04d-%s-%s" % (len(entries), name, which), array_of(blob, which))
        return entries

    def put_all(self, kind, arrays_of, layers=None):
        for k in range(len(self.names)) if layers is None else layers:
            self.layers[k][kind] = [
                self.folder.put(kind, "%04d-%s-%d" % (k, self.names[k], i), array)
                for i, array in enumerate(arrays_of(k))
            ]

    def forward(self):
        loss = 0.0
        for k in range(len(self.names)):
            loss += self.net._forward(k, k)
            self.put_all("data", lambda k: [array_of(self.net._blobs[i], "data") for i in self.net._top_ids(k)], [k])
        return loss

    def backward(self):
        for layer in self.net.layers:
            for blob in layer.blobs:
                if blob.count:
                    blob.diff[...] = 0
        for k in reversed(range(len(self.names))):
            self.net._backward(k, k)
            self.put_all("diff", lambda k: [array_of(self.net._blobs[i], "diff") for i in self.net._bottom_ids(k)], [k])
            self.put_all("param_diff", lambda k: [array_of(blob, "diff") for blob in self.net.layers[k].blobs], [k])


def parse(arguments):
    parser = argparse.ArgumentParser(
        description="Write every blob of a pass of a Caffe net as .npy files with an index.json.",
        epilog="What is not given is drawn from -1 to 1, the same on every machine.",
    )
    parser.add_argument("--model", required=True, help="definition (.prototxt)")
    parser.add_argument(
        "--weights", help="parameters (.caffemodel, or .h5); without, they are as the fillers made them"
    )
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="[NAME=]FILE",
        help=".npy of one input, or .npz with an array for each blob name; NAME.diff in it is the diff of an output "
        "that --backward starts from (repeatable)",
    )
    parser.add_argument("--out", required=True, help="folder to make")
    parser.add_argument("--backward", action="store_true", help="run backward too: diffs of blobs and parameters")
    parser.add_argument("--phase", choices=["TRAIN", "TEST"], default="TEST", help="default: TEST")
    parser.add_argument("--seed", type=int, help="random seed, set before the net is built")
    parser.add_argument("--gpu", type=int, metavar="DEVICE", help="run in GPU mode")
    return parser.parse_args(arguments)


def main(arguments=None, caffe=None):
    """The command; returns the exit status. `caffe`: the module to use, imported if it is not given."""
    options = parse(arguments)
    if caffe is None:
        os.environ.setdefault("GLOG_minloglevel", "2")
        import caffe
    try:
        if options.gpu is None:
            caffe.set_mode_cpu()
        else:
            caffe.set_device(options.gpu)
            caffe.set_mode_gpu()
        dump = Dump(caffe, options)
        dump.run()
    except Usage as error:
        print("dump: %s" % error, file=sys.stderr)
        return 2
    print("wrote %s: %d layers" % (os.path.join(options.out, "index.json"), len(dump.names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
