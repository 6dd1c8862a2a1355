"""Loading a large model beside reading its file and parsing it once: time, and peak memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SHAPES = {
    "fc6": (25088, 4096),
    "fc7": (4096, 4096),
    "fc8": (4096, 1000),
}  # VGG's inner products: nearly all of its 500 MB
TIME_ALLOWED, MEMORY_ALLOWED = 2.0, 2.5

DEFINITION = 'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 25088 } } }\n'
LAYER = (
    'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" '
    "inner_product_param {{ num_output: {outputs} }} }}\n"
)

MAKE = """
import sys
import refcaffe
refcaffe.Net(sys.argv[1], refcaffe.TEST).save(sys.argv[2])
"""
MEASURE = """
import os, resource, sys, time
import refcaffe
from refcaffe.proto import caffe_pb2
what, definition, weights = sys.argv[1:]
if what == "parse":
    started = time.perf_counter()
    with open(weights, "rb") as file:
        caffe_pb2.NetParameter.FromString(file.read())
else:
    net = refcaffe.Net(definition, refcaffe.TEST)
    started = time.perf_counter()
    net.copy_from(weights)
took = time.perf_counter() - started
print(took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / os.path.getsize(weights))
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Definition and model file of 494 MB, made by another process: a child starts with its parent's peak memory."""
    folder: Path = tmp_path_factory.mktemp("model")
    text, bottom = DEFINITION, "x"
    for name, (_, outputs) in SHAPES.items():
        text += LAYER.format(name=name, bottom=bottom, outputs=outputs)
        bottom = name
    definition, weights = folder / "net.prototxt", folder / "net.caffemodel"
    definition.write_text(text)
    subprocess.run([sys.executable, "-c", MAKE, str(definition), str(weights)], check=True)
    return str(definition), str(weights)


def best(what: str, files: tuple[str, str]) -> tuple[float, float]:
    """Seconds (best of three processes) and peak memory as a multiple of the file's size."""
    command = [sys.executable, "-c", MEASURE, what, *files]
    runs = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(3)]
    return min(float(seconds) for seconds, _ in runs), max(float(memory) for _, memory in runs)


def test_load(files: tuple[str, str]) -> None:
    """At most twice the time of reading and parsing, and 2.5 times the file's size in memory."""
    parse, _ = best("parse", files)
    load, memory = best("load", files)
    print(f"\nread and parse {parse:.2f} s; load into a net {load:.2f} s: {load / parse:.2f}x; memory {memory:.2f}x")
    assert load / parse <= TIME_ALLOWED
    assert memory <= MEMORY_ALLOWED
