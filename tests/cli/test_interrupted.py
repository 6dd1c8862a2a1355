"""Runs that are killed and resumed, and runs on other numbers of threads: real processes, equal files."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from refcaffe.data import serialize, write
from refcaffe.hdf5 import is_hdf5
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_binary

NET = """
layer { name: "d" type: "Data" top: "x" top: "t" data_param { source: "db" batch_size: 8 backend: LMDB }
  transform_param { scale: 0.004 %s } }
%s
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 1200 weight_filler { type: "xavier" } } }
layer { name: "r" type: "ReLU" bottom: "ip" top: "ip" }
%s
layer { name: "ip2" type: "InnerProduct" bottom: "ip" top: "ip2" inner_product_param {
  num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "t" top: "loss" }
"""
CONVOLUTION = """
layer { name: "c" type: "Convolution" bottom: "x" top: "c" convolution_param {
  num_output: 16 kernel_size: 3 weight_filler { type: "msra" } } }
layer { name: "n" type: "BatchNorm" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { kernel_size: 2 stride: 2 } }
layer { name: "l" type: "LRN" bottom: "p" top: "x2" }
"""
DROPOUT = 'layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }'
SOLVER = """
net: "net.prototxt" base_lr: 0.01 lr_policy: "multistep" gamma: 0.5 stepvalue: 5 stepvalue: 9 momentum: 0.9
weight_decay: 0.001 max_iter: 16 snapshot_prefix: "s" random_seed: 3 display: 1
"""


def prepare(folder, net, solver, records=8):
    folder.mkdir()
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (records, 3, 12, 12), np.uint8)
    write(str(folder / "db"), ((b"%08d" % i, serialize(image, i % 4)) for i, image in enumerate(images)))
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(solver)
    return folder


def train(folder, *words, **environment):
    command = [sys.executable, "-m", "refcaffe", "train", "--solver=solver.prototxt", *words]
    return subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment})


def finish(process):
    _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    return said


def last_state(folder, ending):
    states = [path.name for path in folder.glob(f"s_iter_*{ending}")]
    return max(states, key=lambda name: int(name.split("_")[2].split(".")[0]), default=None)


def check_whole(folder):
    """Every file that bears its final name can be read, and every state finds its model."""
    for path in folder.glob("s_iter_*"):
        if path.suffix == ".tmp":
            continue
        if is_hdf5(str(path)):
            if "caffemodel" in path.name:
                with Net(str(folder / "deploy.prototxt"), caffe_pb2.TEST) as net:
                    net.copy_from(str(path))
        elif path.suffix == ".caffemodel":
            read_binary(path, caffe_pb2.NetParameter)
        else:
            state = read_binary(path, caffe_pb2.SolverState)
            assert (folder / state.learned_net).exists()


@pytest.mark.parametrize(("form", "ending"), [("BINARYPROTO", ".solverstate"), ("HDF5", ".solverstate.h5")])
def test_killed_while_it_saves_and_resumed_a_run_ends_as_the_whole_one(tmp_path, form, ending):
    # One batch is the whole database, so that a resumed run, which starts at the first record, goes on as the other.
    net, solver = NET % ("", "", ""), f"{SOLVER} snapshot: 1 snapshot_format: {form}"
    whole, killed = (prepare(tmp_path / name, net, solver) for name in ("whole", "killed"))
    (killed / "deploy.prototxt").write_text(
        'layer { name: "i" type: "Input" top: "x" input_param { shape { dim: 1 dim: 432 } } } '
        'layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 1200 } }'
    )
    finish(train(whole))
    chance = random.Random(7)
    for _ in range(3):
        state = last_state(killed, ending)
        process = train(killed, *([f"--snapshot={state}"] if state else []))
        saves = chance.randint(2, 5)  # two lines a snapshot
        for line in process.stderr:
            saves -= "Snapshotting" in line
            if saves == 0:
                break
        time.sleep(chance.uniform(0, 0.01))
        process.kill()
        process.communicate()
        check_whole(killed)
    finish(train(killed, f"--snapshot={last_state(killed, ending)}"))
    names = sorted(path.name for path in whole.glob("s_iter_16.*"))
    assert len(names) == 2
    if form == "BINARYPROTO":
        assert [(whole / name).read_bytes() for name in names] == [(killed / name).read_bytes() for name in names]
    else:
        import h5py

        for name in names:
            with h5py.File(whole / name) as a, h5py.File(killed / name) as b:
                assert contents(a) == contents(b)


def contents(file):
    found = {}
    file.visititems(lambda name, item: found.update({name: item[()].tobytes()} if hasattr(item, "shape") else {}))
    return found


def test_the_number_of_threads_changes_no_bit(tmp_path):
    net = NET % ("crop_size: 10 mirror: true", CONVOLUTION, DROPOUT)
    net = net.replace('bottom: "x" top: "ip"', 'bottom: "x2" top: "ip"')
    found = []
    for threads in (1, 2, 3):
        folder = prepare(tmp_path / str(threads), net, SOLVER, records=20)
        said = finish(train(folder, OPENBLAS_NUM_THREADS=str(threads), REFCAFFE_NUM_THREADS=str(threads)))
        losses = [line.split("loss = ")[1] for line in said.splitlines() if "loss = " in line]
        files = [(folder / f"s_iter_16.{ending}").read_bytes() for ending in ("caffemodel", "solverstate")]
        found.append((losses, files))
    assert len(set(found[0][0])) > 10
    assert found[1:] == found[:1] * 2
