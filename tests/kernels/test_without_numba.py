"""A process that cannot import Numba trains and passes recorded cases as one that can.

Its matrix products are NumPy's. The other process is made to use these, too: then everything has the same bits.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from tests.net.nets import inner_product, input_layer


def layer(name, kind, bottom, top, param=""):
    return f'layer {{ name: "{name}" type: "{kind}" bottom: "{bottom}" top: "{top}" {param} }}\n'


def convolution(name, bottom, outputs, size, more="", kind="Convolution"):
    filler = 'weight_filler { type: "msra" }'
    window = f"kernel_size: {size} {more} {filler}"
    return layer(name, kind, bottom, name, f"convolution_param {{ num_output: {outputs} {window} }}")


def pooling(name, bottom, param):
    return layer(name, "Pooling", bottom, name, f"pooling_param {{ {param} }}")


def loss(bottom):
    return f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" }}\n'


LENET = (
    input_layer("data", 16, 1, 28, 28)
    + input_layer("label", 16)
    + convolution("conv1", "data", 20, 5)
    + pooling("pool1", "conv1", "kernel_size: 2 stride: 2")
    + convolution("conv2", "pool1", 50, 5)
    + pooling("pool2", "conv2", "kernel_size: 2 stride: 2")
    + inner_product("ip1", "pool2", outputs=500)
    + layer("relu1", "ReLU", "ip1", "ip1")
    + inner_product("ip2", "ip1", outputs=10)
    + loss("ip2")
)

# What LeNet does not have.
OTHERS = (
    input_layer("data", 4, 3, 20, 21)
    + input_layer("label", 4)
    + convolution("conv1", "data", 8, 3, "pad: 1 bias_term: false")
    + layer("norm", "BatchNorm", "conv1", "norm")
    + layer("scale", "Scale", "norm", "norm", "scale_param { bias_term: true }")
    + layer("tanh", "TanH", "norm", "tanh")
    + layer("lrn", "LRN", "tanh", "lrn", "lrn_param { local_size: 3 alpha: 0.5 }")
    + pooling("average", "lrn", "pool: AVE kernel_size: 3 stride: 2 pad: 1")
    + convolution("conv2", "average", 6, 3, "stride: 2 dilation: 2 pad: 2")
    + convolution("deconv", "conv2", 4, 3, "stride: 2", "Deconvolution")
    + inner_product("ip", "deconv", outputs=10)
    + loss("ip")
)

# Arguments: 0 or 1, is there a compiler; a folder to train in; what to tell ``conformance``.
PROGRAM = """
import sys
if sys.argv[1] == "0":
    sys.modules["numba"] = None
import numpy as np
import refcaffe
from conformance.cli import main
from refcaffe.kernels import compiled, products, relu

missing = sys.argv[1] == "0"
assert (products._multiply(np.dtype(np.float32)) is products._plain) == missing
products._multiply = lambda dtype: products._plain

for name in "lenet", "others":
    refcaffe.set_random_seed(3)
    solver = refcaffe.SGDSolver(f"{sys.argv[2]}/{name}.solver")
    rng = np.random.default_rng(3)
    for _ in range(3):
        data, label = (solver.net.blobs[blob].data for blob in ("data", "label"))
        data[...], label[...] = rng.normal(0, 1, data.shape), rng.integers(0, 10, label.shape)
        solver.step(1)
    arrays = [blob.data for blobs in solver.net.params.values() for blob in blobs]
    arrays += [array for blob in solver.net.blobs.values() for array in (blob.data, blob.diff)]
    np.savez(f"{sys.argv[2]}/{name}.npz", *arrays)
assert (compiled._compiler() is None) == missing == (relu._forward._compiled is relu._forward.plain)
sys.exit(main(sys.argv[3:]))
"""

CASES = [
    f"layer/{kind}/*" for kind in ("pooling", "lrn", "convolution", "im2col", "relu", "tanh", "batch_norm", "embed")
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """What such a process left, and what one with Numba did."""
    return [run(compiler, tmp_path_factory.mktemp(f"numba{compiler}")) for compiler in (0, 1)]


def run(compiler, folder):
    for name, net in ("lenet", LENET), ("others", OTHERS):
        (folder / f"{name}.net").write_text(net)
        solver = f'net: "{folder / name}.net" base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005 lr_policy: "fixed"\n'
        (folder / f"{name}.solver").write_text(solver)
    chosen = [word for case in CASES for word in ("--case", case)]
    command = [sys.executable, "-c", PROGRAM, str(compiler), folder, "run", "--json", folder / "report.json", *chosen]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("Kernels run in NumPy" in done.stderr) == (not compiler)
    return folder


@pytest.mark.parametrize("name", ["lenet", "others"])
def test_training(folders, name):
    plain, compiled = (np.load(folder / f"{name}.npz") for folder in folders)
    assert len(plain.files) == len(compiled.files) > 20
    for one in compiled.files:
        assert np.isfinite(compiled[one]).all()
        assert plain[one].tobytes() == compiled[one].tobytes(), one


def test_recorded_cases(folders):
    plain, compiled = (json.loads((folder / "report.json").read_text())["cases"] for folder in folders)
    assert len(compiled) > 150
    for case in plain + compiled:
        del case["seconds"]
    assert plain == compiled
