"""Another engine for tests: a net in double precision whose every result is rounded once, and what it leaves."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import refcaffe as caffe
from refcaffe.cli import dump_in_caffe

Alter = Callable[[str, np.ndarray], Any]


def dump(*arguments: Any) -> int:
    """``refcaffe dump``, silent."""
    with contextlib.redirect_stdout(io.StringIO()):
        return dump_in_caffe.main([str(argument) for argument in arguments], caffe)


def rerun(model: Path | str, folder: Path, out: Path, alter: Alter = lambda name, array: None) -> dict[str, np.ndarray]:
    """Run a dump's net from the dump's parameters and inputs in the other engine; write its own dump to ``out``.

    ``alter`` may change the array that layer ``name`` has just computed. Returns blobs and diffs by name, as they are
    in the end.
    """
    index = json.loads((folder / "index.json").read_text())
    if index["seed"] is not None:
        caffe.set_random_seed(index["seed"])
    blobs: dict[str, np.ndarray] = {}
    out.mkdir()

    def keep(key: str, blob: Any, which: str, layer: str) -> dict[str, str] | None:
        if not blob.count:
            return None
        array = getattr(blob, which)
        with np.errstate(all="ignore"):
            array[...] = array.astype(np.float32)
        if layer:
            alter(layer, array)
        blobs[key] = array.astype(np.float32)
        file = f"{len(list(out.iterdir()))}.npy"
        np.save(out / file, blobs[key])
        return {"file": file}

    with caffe.Net(str(model), ("TRAIN", "TEST").index(index["phase"]), dtype=float) as net:
        for layer, entry in zip(net.all_layers, index["layers"], strict=True):
            for blob, param in zip(layer.blobs, entry["param"], strict=True):
                if blob.count:
                    blob.data[...] = np.load(folder / param["file"])
        for which, entries in index["given"].items():
            for name, entry in entries.items():
                array = np.load(folder / entry["file"])
                if which == "data":
                    net.blobs[name].reshape(*array.shape)
                if array.size:
                    getattr(net.blobs[name], which)[...] = array
        layers = []
        for k, name in enumerate(net.layer_names):
            net.forward_from_to(k, k)
            tops = index["layers"][k]["tops"]
            data = [keep(top, blob, "data", name) for top, blob in zip(tops, net.tops[k], strict=True)]
            layers.append({"name": name, "tops": tops, "bottoms": index["layers"][k]["bottoms"], "data": data})
        if any("diff" in entry for entry in index["layers"]):
            for k in reversed(range(len(layers))):
                net.backward_from_to(k, k)
                pairs = zip(layers[k]["bottoms"], net.bottoms[k], strict=True)
                layers[k]["diff"] = [keep(f"{bottom}.diff", blob, "diff", "") for bottom, blob in pairs]
                layers[k]["param_diff"] = [keep("", blob, "diff", "") for blob in net.all_layers[k].blobs]
    (out / "index.json").write_text(json.dumps({"format": "caffe-dump 1", "layers": layers}))
    return blobs
