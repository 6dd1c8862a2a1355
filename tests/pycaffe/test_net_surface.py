"""Nets and solvers as scripts use them."""

import logging
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refcaffe
from refcaffe import CheckError
from refcaffe.proto import caffe_pb2

NET = """
name: "two" force_backward: true
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "hidden" inner_product_param {
  num_output: 4 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }
layer { name: "act" type: "AbsVal" bottom: "hidden" top: "out" }
layer { name: "staged" type: "Power" bottom: "out" top: "extra" include { stage: "more" min_level: 1 } }
"""

PYTHON_NET = """
layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 3 } } }
layer { name: "mine" type: "Python" bottom: "data" top: "out" python_param { module: "own_layers" layer: "Counting" } }
"""
OWN_LAYERS = """
import refcaffe
class Counting(refcaffe.Layer):
    def setup(self, bottom, top):
        self.calls = 0
        self.blobs.add_blob(2)
    def reshape(self, bottom, top):
        top[0].reshape(*bottom[0].shape)
    def forward(self, bottom, top):
        self.calls += 1
        top[0].data[...] = bottom[0].data + self.calls
    def backward(self, top, propagate_down, bottom):
        pass
"""


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    return path


@pytest.fixture
def net(model):
    refcaffe.set_random_seed(3)
    return refcaffe.Net(str(model), refcaffe.TEST)


def expected(net, rows):
    weights, bias = (blob.data for blob in net.params["ip"])
    return abs(rows @ weights.T + bias)


def test_constructors(model, net, tmp_path, caplog):
    weights = tmp_path / "w.caffemodel"
    net.save(weights)
    for other in (
        refcaffe.Net(network_file=str(model), phase=refcaffe.TEST, weights=str(weights)),
        refcaffe.Net(model, refcaffe.TEST, 0, None, weights),
    ):
        assert all((a.data == b.data).all() for a, b in zip(net.params["ip"], other.params["ip"], strict=True))
        assert not caplog.records
    assert refcaffe.Net(str(model), refcaffe.TEST, 1, ["more"]).outputs == ["extra"]
    assert refcaffe.Net(str(model), refcaffe.TRAIN, stages=["more"], level=2).outputs == ["extra"]
    assert refcaffe.Net(str(model), refcaffe.TRAIN, stages=["more"]).outputs == ["out"]
    with caplog.at_level(logging.WARNING):
        old = refcaffe.Net(str(model), str(weights), refcaffe.TEST)
    assert [record.name for record in caplog.records] == ["refcaffe._caffe.cpp"] * 3
    assert "DEPRECATION WARNING" in caplog.text
    assert f"Net('{model}', 1, weights='{weights}')" in caplog.text
    assert (old.phase, old.outputs) == (refcaffe.TEST, ["out"])
    assert (old.params["ip"][0].data == net.params["ip"][0].data).all()


def test_files_that_are_not_there(model):
    for arguments, name in [
        (("gone.prototxt", refcaffe.TEST), "gone.prototxt"),
        ((str(model), "gone.caffemodel", refcaffe.TEST), "gone.caffemodel"),
    ]:
        with pytest.raises(RuntimeError, match=f"^Could not open file {name}$"):
            refcaffe.Net(*arguments)
    with pytest.raises(RuntimeError, match=r"^Could not open file gone\.caffemodel$"):
        refcaffe.Net(str(model), refcaffe.TEST, weights="gone.caffemodel")
    with pytest.raises(CheckError, match=r"Couldn't open gone\.caffemodel"):
        refcaffe.Net(str(model), refcaffe.TEST).copy_from("gone.caffemodel")
    with pytest.raises(TypeError, match="phase"):
        refcaffe.Net(str(model))


def test_names(net):
    assert list(net.blobs) == net._blob_names == ["data", "hidden", "out"]
    assert list(net.layer_dict) == net._layer_names == ["data", "ip", "act"]
    assert [layer.type for layer in net.layers] == ["Input", "InnerProduct", "AbsVal"]
    assert (net.inputs, net.outputs) == (["data"], ["out"])
    assert [net._blob_names[i] for i in (*net._inputs, *net._outputs)] == ["data", "out"]
    assert net.top_names == {"data": ["data"], "ip": ["hidden"], "act": ["out"]}
    assert net.bottom_names == {"data": [], "ip": ["data"], "act": ["hidden"]}
    assert [net._bottom_ids(i) for i in range(3)] == [[], [0], [1]]
    assert [net._top_ids(i) for i in range(3)] == [[0], [1], [2]]
    assert [list(blob.shape) for blob in net.params["ip"]] == [[4, 2], [4]]
    assert list(net.params) == ["ip"]
    assert net.blob_loss_weights == {"data": 0, "hidden": 0, "out": 0}
    for name in ("blobs", "params", "layers", "layer_dict", "inputs", "outputs", "top_names", "bottom_names"):
        assert getattr(net, name) is getattr(net, name), name


def test_blobs_live_longer_than_their_net(net):
    blob, array = net.blobs["hidden"], net.params["ip"][0].data
    total = array.sum()
    del net
    blob.data[...] = 2
    assert blob.data.sum() == 24
    assert array.sum() == total


def test_passes_take_and_return_arrays(net):
    rows = np.arange(6, dtype=np.float32).reshape(3, 2)
    returned = net.forward(data=rows, blobs=["hidden"])
    assert set(returned) == {"out", "hidden"}
    np.testing.assert_allclose(returned["out"], expected(net, rows), rtol=1e-5)
    assert returned["out"] is net.blobs["out"].data
    net.blobs["hidden"].data[...] = -7
    assert set(net.forward(start="act", end="act")) == {"out"}
    assert (net.blobs["out"].data == 7).all()
    assert set(net.forward(end="ip")) == {"hidden"}
    diffs = net.backward(out=np.ones((3, 4)), diffs=["hidden"])
    assert set(diffs) == {"data", "hidden"}
    np.testing.assert_array_equal(abs(diffs["hidden"]), 1)
    np.testing.assert_allclose(diffs["data"], diffs["hidden"] @ net.params["ip"][0].data, rtol=1e-5)
    assert set(net.backward(start="act", end="act")) == {"hidden"}
    assert net._forward(0, 2) == 0
    net._backward(2, 0)
    assert net.params["ip"][0].diff.any()
    net.clear_param_diffs()
    assert not net.params["ip"][0].diff.any()


def test_arrays_that_do_not_fit(net):
    rows = np.zeros((3, 2))
    for call, message in [
        (lambda: net.forward(dat=rows), "Input blob arguments do not match net inputs."),
        (lambda: net.forward(data=rows[:2]), "Input is not batch sized"),
        (lambda: net.backward(data=rows), "Top diff arguments do not match net outputs."),
        (lambda: net.backward(out=np.zeros((2, 4))), "Diff is not batch sized"),
        (net.forward_all, "no array"),
        (lambda: net.forward(start="nowhere"), "'nowhere' is not a layer"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


@given(st.integers(1, 10), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_forward_all_is_forward_row_by_row(count, seed):
    net = refcaffe.Net(_message(NET))
    rows = np.random.default_rng(seed).normal(size=(count, 2)).astype(np.float32)
    outs = net.forward_all(data=rows, blobs=["hidden"])
    assert {name: array.shape for name, array in outs.items()} == {"out": (count, 4), "hidden": (count, 4)}
    np.testing.assert_allclose(outs["out"], expected(net, rows), rtol=1e-4, atol=1e-5)
    assert (abs(outs["hidden"]) == outs["out"]).all()


def _message(text):
    from refcaffe.proto.io import parse_text

    return parse_text(text, caffe_pb2.NetParameter, "test")


def test_forward_backward_all(net):
    rows = np.random.default_rng(0).normal(size=(7, 2)).astype(np.float32)
    gradients = np.random.default_rng(1).normal(size=(7, 4)).astype(np.float32)
    outs, diffs = net.forward_backward_all(blobs=["hidden"], diffs=["hidden"], data=rows, out=gradients)
    assert {name: array.shape for name, array in outs.items()} == {"out": (7, 4), "hidden": (7, 4)}
    assert {name: array.shape for name, array in diffs.items()} == {"data": (7, 2), "hidden": (7, 4)}
    np.testing.assert_allclose(diffs["hidden"], gradients * np.sign(outs["hidden"]), rtol=1e-5)
    net.blobs["out"].diff[...] = 2
    _, diffs = net.forward_backward_all(data=rows)
    assert diffs["data"].shape == (7, 2)


def test_reshape_reaches_every_layer(net):
    net.blobs["data"].reshape(5, 2)
    assert net.blobs["out"].shape == (3, 4)
    net.reshape()
    assert net.blobs["out"].shape == (5, 4)


def test_callbacks_come_around_every_layer(net):
    events = []
    for when in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net, when)(lambda layer, when=when: events.append(f"{when} {layer}"))
    net.forward()
    assert events == [f"{when}_forward {i}" for i in range(3) for when in ("before", "after")]
    events.clear()
    net.backward()
    assert events == [f"{when}_backward {i}" for i in (2, 1, 0) for when in ("before", "after")]

    def stop(layer):
        raise KeyError(layer)

    net.before_forward(stop)
    with pytest.raises(KeyError):
        net.forward()


def test_share_with(model, net):
    other = refcaffe.Net(str(model), refcaffe.TRAIN)
    other.share_with(net)
    net.params["ip"][0].data[...] = 5
    assert (other.params["ip"][0].data == 5).all()


def test_a_python_layer_is_the_users_object(tmp_path, monkeypatch):
    (tmp_path / "own_layers.py").write_text(OWN_LAYERS)
    monkeypatch.syspath_prepend(tmp_path)
    net = refcaffe.Net(_message(PYTHON_NET))
    layer = net.layers[1]
    assert type(layer).__name__ == "Counting"
    assert isinstance(layer, refcaffe.Layer)
    assert layer is net.layer_dict["mine"]
    assert layer.type == "Python"
    layer.calls = 10
    assert (net.forward()["out"] == 11).all()
    net.params["mine"][0].data[...] = 3
    assert layer.blobs[0].data.tolist() == [3, 3]


def test_input_arrays_of_a_memory_data_layer(net):
    data, labels = np.zeros((4, 1, 2, 3), np.float32), np.zeros(4, np.float32)
    with pytest.raises(RuntimeError, match="may only be called if the first layer is a MemoryDataLayer"):
        net.set_input_arrays(data, labels)
    given = []
    net.all_layers[0] = SimpleNamespace(
        type="MemoryData", batch_size=2, channels=1, height=2, width=3, reset=lambda *arrays: given.append(arrays)
    )
    net.set_input_arrays(data, labels)
    assert given[0][0] is data
    assert given[0][1].shape == (4, 1, 1, 1)
    for wrong, message in [
        ((data[:, :, :, ::-1], labels), "data array must be C contiguous"),
        ((data[0], labels), "data array must be 4-d"),
        ((data.astype(float), labels), "data array must be float32"),
        ((data.repeat(2, axis=1), labels), "data array has wrong number of channels"),
        ((data.repeat(2, axis=2), labels), "data array has wrong height"),
        ((data.repeat(2, axis=3), labels), "data array has wrong width"),
        ((data, labels.reshape(1, 4, 1, 1)), "labels array has wrong number of channels"),
        ((data, labels[:2]), "data and labels must have the same first dimension"),
        ((data[:3], labels[:3]), "first dimensions of input arrays must be a multiple of batch size"),
    ]:
        with pytest.raises(RuntimeError, match=message):
            net.set_input_arrays(*wrong)


SOLVER = """
net: "{net}" base_lr: 0.5 lr_policy: "fixed" max_iter: 4 display: 0 test_iter: 1 test_interval: 100
snapshot_after_train: false random_seed: 1
"""
TRAINED = """
layer { name: "d" type: "DummyData" top: "x" top: "t" dummy_data_param {
  shape { dim: 2 dim: 3 } shape { dim: 2 dim: 1 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "y" inner_product_param {
  num_output: 1 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "y" bottom: "t" top: "loss" }
"""


def test_solvers(tmp_path):
    (tmp_path / "net.prototxt").write_text(TRAINED)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(net=tmp_path / "net.prototxt"))
    solver = refcaffe.get_solver(str(tmp_path / "solver.prototxt"))
    assert isinstance(solver, refcaffe.SGDSolver)
    assert (solver.iter, len(solver.test_nets), solver.lr) == (0, 1, 0.5)
    assert (solver.param.max_iter, solver.param.display, solver.param.layer_wise_reduce) == (4, 0, True)
    events = []
    solver.add_callback(lambda: events.append("start"), lambda: events.append("ready"))
    solver.step(1)
    assert events == ["start", "ready"]
    solver.param.base_lr = 0.25
    assert solver.lr == 0.25
    solver.snapshot()
    solver.solve()
    assert solver.iter == 4
    other = refcaffe.SGDSolver(str(tmp_path / "solver.prototxt"))
    other.restore(str(tmp_path / "solver_iter_1.solverstate"))
    assert other.iter == 1
    solver.share_weights(other.net)
    assert (other.net.params["ip"][0].data == solver.net.params["ip"][0].data).all()
    other.net.params["ip"][0].data[...] = 0
    other.net.params["ip"][0].diff[...] = 1
    other.apply_update()
    assert (other.net.params["ip"][0].data < 0).all()
