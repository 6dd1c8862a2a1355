"""Net: set-up, running, parameters, weights; whole recorded nets are conformance cases."""

import logging

import numpy as np
import pytest

import refcaffe
from refcaffe.checks import CheckError
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from tests.net.nets import inner_product, input_layer, make_net

LOSS = 'layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }\n'
REGRESSION = input_layer("x", 2, 3) + input_layer("t", 2, 4) + inner_product("ip", "x") + LOSS


def fill(net, seed=0):
    rng = np.random.default_rng(seed)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = rng.normal(size=blob.shape)
    for name in net.inputs:
        net.blobs[name].data[...] = rng.normal(size=net.blobs[name].shape)


def test_forward_and_backward_of_a_linear_regression():
    net = make_net(REGRESSION)
    fill(net)
    x, t, w, b = (blob.data.copy() for blob in (net.blobs["x"], net.blobs["t"], *net.params["ip"]))
    loss = net.forward()["loss"]
    error = x @ w.T + b - t
    assert loss == pytest.approx((error**2).sum() / 4, rel=1e-6)
    net.clear_param_diffs()
    net.backward()
    np.testing.assert_allclose(net.params["ip"][0].diff, error.T @ x / 2, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(net.params["ip"][1].diff, error.sum(0) / 2, rtol=1e-5, atol=1e-6)


def test_names_and_ids():
    net = make_net(REGRESSION)
    assert net.layer_names == ["x", "t", "ip", "loss"]
    assert net.inputs == ["x", "t"]
    assert net.outputs == ["loss"]
    assert net.bottom_ids == [[], [], [0], [2, 1]]
    assert net.layer_need_backward == [False, False, True, True]
    assert net.memory_used == 6 + 8 + 8 + 1


def test_double_precision():
    net = make_net(REGRESSION, dtype=np.float64)
    fill(net)
    assert net.forward()["loss"].dtype == np.float64


def test_partial_runs_by_layer_name():
    net = make_net(REGRESSION)
    fill(net)
    assert set(net.forward(end="ip")) == {"ip"}
    assert set(net.forward(["x"], start="loss")) == {"loss", "x"}
    with pytest.raises(ValueError, match="'nowhere' is not a layer"):
        net.forward(start="nowhere")


def test_inputs_as_arguments():
    net = make_net(REGRESSION)
    x, t = np.ones((2, 3), np.float32), np.zeros((2, 4), np.float32)
    net.forward(x=x, t=t)
    np.testing.assert_array_equal(net.blobs["x"].data, x)
    with pytest.raises(Exception, match="Input blob arguments do not match net inputs"):
        net.forward(x=x)


def test_a_net_without_layers_cannot_run():
    net = make_net("")
    with pytest.raises(CheckError, match=r"end < layers_.size\(\) \(-1 vs. 0\)"):
        net.forward_from_to(0, -1)
    with pytest.raises(CheckError, match=r"start < layers_.size\(\) \(-1 vs. 0\)"):
        net.backward_from_to(-1, 0)


def test_a_smaller_batch_after_reshape():
    net = make_net(REGRESSION)
    fill(net)
    net.blobs["x"].reshape(1, 3)
    net.blobs["t"].reshape(1, 4)
    net.reshape()
    assert net.blobs["ip"].shape == (1, 4)
    net.forward()


SHARED = input_layer() + inner_product("a", "x", extra='param { name: "w" } param { name: "b" }', outputs=3)


def test_shared_parameters_are_one_memory_and_learn_once():
    net = make_net(SHARED + inner_product("b", "a", extra='param { name: "w" lr_mult: 2 }', outputs=3))
    assert net.parameters.owners == [-1, -1, 0, -1]
    assert len(net.parameters.learnable) == 3
    assert net.parameters.lr[0] == 2
    net.params["a"][0].data[...] = 7
    np.testing.assert_array_equal(net.params["b"][0].data, 7)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (inner_product("b", "a", extra='param { name: "w" }', outputs=2), "shape mismatch"),
        (inner_product("b", "a", extra='param { name: "w" share_mode: PERMISSIVE }', outputs=2), "count mismatch"),
        (inner_product("b", "a", extra='param { name: "w" } param { } param { }'), "Too many params"),
        (inner_product("b", "a", top="x"), "produced by multiple sources"),
        ('layer { name: "b" type: "Nonesuch" bottom: "a" }', "Unknown layer type: Nonesuch"),
        (inner_product("b", "a", extra="propagate_down: true propagate_down: true"), "propagate_down"),
    ],
)
def test_refusals_name_the_layer(second, message):
    with pytest.raises(CheckError, match=message) as caught:
        make_net(SHARED + second)
    assert "layer 'b'" in str(caught.value)


def test_parameters_without_a_learning_rate_stop_the_gradient():
    frozen = inner_product("ip", "x", extra="param { lr_mult: 0 } param { lr_mult: 0 }")
    net = make_net(input_layer("x", 2, 3) + input_layer("t", 2, 4) + frozen + LOSS)
    assert net.layer_need_backward == [False, False, False, False]
    net = make_net("force_backward: true\n" + input_layer("x", 2, 3) + input_layer("t", 2, 4) + frozen + LOSS)
    assert net.layer_need_backward == [True, True, True, True]
    assert net.bottom_need_backward[2:] == [[True], [True, True]]


def test_weights_go_to_layers_of_the_same_name(tmp_path):
    net = make_net(REGRESSION)
    fill(net, seed=3)
    path = str(tmp_path / "w.caffemodel")
    net.save(path)
    other = make_net(input_layer("x", 5, 3) + inner_product("ip", "x") + inner_product("extra", "ip"))
    other.copy_from(path)
    for mine, theirs in zip(other.params["ip"], net.params["ip"], strict=True):
        np.testing.assert_array_equal(mine.data, theirs.data)


def test_mismatched_weights_are_refused_and_named(tmp_path):
    net = make_net(REGRESSION)
    path = str(tmp_path / "w.caffemodel")
    net.save(path)
    other = make_net(input_layer("x", 5, 3) + inner_product("ip", "x", outputs=5))
    with pytest.raises(CheckError, match="Cannot copy param 0 weights from layer 'ip'") as caught:
        other.copy_from(path)
    assert path in str(caught.value)


def test_a_failed_save_leaves_the_old_file(tmp_path):
    net = make_net(REGRESSION)
    path = tmp_path / "w.caffemodel"
    net.save(str(path))
    before = path.read_bytes()
    with pytest.raises(CheckError):
        net.save(str(tmp_path / "no" / "w.caffemodel"))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["w.caffemodel"]


def test_share_with_uses_the_others_memory():
    net, other = make_net(REGRESSION), make_net(REGRESSION)
    other.share_with(net)
    net.params["ip"][0].data[...] = 3
    np.testing.assert_array_equal(other.params["ip"][0].data, 3)


def test_saved_definition_keeps_default_loss_weight_and_phase():
    proto = make_net(REGRESSION).to_proto()
    assert list(proto.layer[-1].loss_weight) == [1]
    assert proto.layer[0].phase == caffe_pb2.TRAIN


def test_set_up_log(caplog):
    with caplog.at_level(logging.INFO, logger="refcaffe"):
        make_net(REGRESSION)
    text = caplog.text
    for line in ("Creating Layer ip", "ip <- x", "ip -> ip", "Top shape: 2 4 (8)", "    with loss weight 1",
                 "Memory required for data: 92", "ip needs backward computation.",
                 "This network produces output loss", "Network initialization done."):  # fmt: skip
        assert line in text


def test_debug_info_log(caplog):
    net = make_net("debug_info: true\n" + REGRESSION)
    fill(net)
    with caplog.at_level(logging.INFO, logger="refcaffe"):
        net.forward_backward()
    assert "    [Forward] Layer ip, param blob 0 data: " in caplog.text
    assert "    [Backward] Layer ip, param blob 1 diff: " in caplog.text
    assert "All net params (data, diff): L1 norm = (" in caplog.text


def test_a_file_gives_a_net(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_text(REGRESSION)
    net = Net(str(path), refcaffe.TEST)
    assert net.phase == refcaffe.TEST
