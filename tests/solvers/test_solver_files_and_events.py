"""What a solver reads from its file, and what it tells its listeners."""

import sys

import numpy as np
import pytest

import refcaffe
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text
from refcaffe.solvers.read import read_solver_param
from tests.solvers.test_solver import NET, make


@pytest.mark.parametrize(
    ("path", "given", "prefix"),
    [
        ("solver.prototxt", None, "solver"),
        ("./solver.v2.prototxt", None, "./solver.v2"),
        ("sub//solver", None, "sub//solver"),
        ("sub/.solver", None, "sub/"),
        ("solver.prototxt", "sub", "sub/solver"),
        ("./sub/a.prototxt", "./sub/", "./sub/a"),
        ("solver.prototxt", "sub/x", "sub/x"),
        ("solver.prototxt", "", ""),
    ],
)
def test_the_prefix_of_snapshots(tmp_path, monkeypatch, path, given, prefix):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / path).write_text("" if given is None else f'snapshot_prefix: "{given}"')
    assert read_solver_param(path).snapshot_prefix == prefix


def test_listeners_are_told_what_happens(tmp_path):
    extra = "snapshot: 2 display: 3 test_iter: 2 test_interval: 2 test_compute_loss: true"
    solver, told = make(f'{extra} snapshot_prefix: "{tmp_path}/s"'), []
    solver.listeners.append(told.append)
    solver.step(4)
    shown = [(event["event"], event["iteration"]) for event in told]
    assert shown == [("test", 0), ("train", 0), ("snapshot", 2), ("test", 2), ("train", 3), ("snapshot", 4)]
    train, test = told[4], told[3]
    assert train["last_loss"] == solver.losses[-1] == train["outputs"]["loss"]
    assert train["lr"] == np.float32(0.1)
    assert test["test_loss"] == pytest.approx(test["scores"]["loss"])
    assert told[-1]["file"] == f"{tmp_path}/s_iter_4.solverstate"


def test_an_output_of_several_values_is_told_as_a_list():
    silent = 'layer { name: "s" type: "Sigmoid" bottom: "ip" top: "s" }'
    param = parse_text('base_lr: 0.1 lr_policy: "fixed" display: 1', caffe_pb2.SolverParameter, "test")
    param.net_param.CopyFrom(parse_text(NET + silent, caffe_pb2.NetParameter, "test"))
    with refcaffe.SGDSolver(param) as solver:
        told = []
        solver.listeners.append(told.append)
        solver.step(1)
        assert told[0]["outputs"]["s"] == solver.net.blobs["s"].data.reshape(-1).tolist()


def test_test_batches_of_other_sizes(tmp_path, monkeypatch):
    (tmp_path / "growing.py").write_text(
        "import refcaffe as caffe\nclass L(caffe.Layer):\n"
        "    def setup(self, b, t): self.sizes = [2, 1, 3, 2]\n"
        "    def reshape(self, b, t): t[0].reshape(self.sizes[0])\n"
        "    def forward(self, b, t): t[0].data[...] = self.sizes.pop(0)\n"
        "    def backward(self, t, p, b): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    param = parse_text("base_lr: 0.1 test_iter: 3 test_interval: 9", caffe_pb2.SolverParameter, "test")
    param.train_net_param.CopyFrom(parse_text(NET, caffe_pb2.NetParameter, "test"))
    layer = 'layer { name: "l" type: "Python" top: "y" python_param { module: "growing" layer: "L" } }'
    param.test_net_param.append(parse_text(layer, caffe_pb2.NetParameter, "test"))
    with refcaffe.SGDSolver(param) as solver:
        assert solver.test(0) == pytest.approx([(2 + 1 + 3) / 3, (2 + 3) / 3])
    del sys.modules["growing"]
