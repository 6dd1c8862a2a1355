"""Peak memory of a pass beside what it cannot do without: blobs, parameters, and columns of one image per layer.

The latter is what original Caffe allocates. Each net runs in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

NETS = {"AlexNet, 4 images": ("alexnet", 4), "GoogLeNet, 4 images": ("googlenet", 4), "VGG-16, 1 image": ("vgg16", 1)}
ALLOWED = 1.2

CODE = """
import resource, sys
from math import prod
from benchmarks import nets
from refcaffe.syncedmem import Head

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

small = nets.load("lenet", 1)
nets.runner(small, "both")()  # imports, compiled kernels
before = peak()
net = nets.load(sys.argv[1], int(sys.argv[2]))
nets.runner(net, "both")()
used = peak() - before

memories = [memory for blob in [*net.all_blobs, *net.parameters.blobs] for memory in blob.memories[:2]]
blobs = {id(memory): memory.size for memory in memories if memory.head is not Head.UNINITIALIZED}
columns = 0
for layer in net.layers:
    if layer.type == "Convolution" and not layer.window.is_a_point:
        columns += layer.columns.count * layer.dtype.itemsize
print(used, sum(blobs.values()), columns)
"""


@pytest.mark.parametrize("name", NETS)
def test_peak(name, record_property):
    words = [sys.executable, "-c", CODE, NETS[name][0], str(NETS[name][1])]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    used, blobs, columns = map(int, said.split())
    ratio = used / (blobs + columns)
    record_property("ratio", ratio)
    print(f"\n{name}: {used / 1e6:.0f} MB; blobs {blobs / 1e6:.0f}, columns {columns / 1e6:.0f}: {ratio:.2f}x")
    assert ratio <= ALLOWED
