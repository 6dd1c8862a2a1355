"""Nets written in Python."""

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import refcaffe
from refcaffe import coord_map, net_spec
from refcaffe import layers as L
from refcaffe import params as P
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import to_text


def small():
    n = refcaffe.NetSpec()
    n.data, n.label = L.DummyData(shape=[{"dim": [2, 3]}, {"dim": 2}], ntop=2)
    n.ip = L.InnerProduct(n.data, num_output=4, weight_filler={"type": "xavier"}, param=[{"lr_mult": 2}])
    n.relu = L.ReLU(n.ip, in_place=True)
    n.loss = L.SoftmaxWithLoss(n.relu, n.label, include={"phase": refcaffe.TRAIN, "stage": ["a", "b"]}, loss_weight=0.5)
    return n


def test_what_is_written():
    expected = """
        layer { name: "data" type: "DummyData" top: "data" top: "label"
          dummy_data_param { shape { dim: 2 dim: 3 } shape { dim: 2 } } }
        layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" param { lr_mult: 2 }
          inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
        layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
        layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_weight: 0.5
          include { phase: TRAIN stage: "a" stage: "b" } }
    """
    from refcaffe.proto.io import parse_text

    assert small().to_proto() == parse_text(expected, caffe_pb2.NetParameter, "test")


def test_it_runs(tmp_path):
    (tmp_path / "net").write_text(str(small().to_proto()))
    net = refcaffe.Net(tmp_path / "net", refcaffe.TRAIN, stages=["a", "b"])
    assert list(net.forward()) == ["loss"]


def test_names_that_nobody_gave():
    data = L.Input(shape={"dim": [1, 1]})
    a, b = L.Slice(data, ntop=2, slice_dim=1)
    top = L.Eltwise(L.ReLU(a, in_place=True), L.ReLU(b), operation=P.Eltwise.MAX)
    net = top.to_proto()
    assert net == refcaffe.to_proto(top)
    assert [layer.name for layer in net.layer] == ["Input1", "Slice1", "ReLU1", "ReLU2", "Eltwise1"]
    assert [list(layer.top) for layer in net.layer] == [
        ["Input1"],
        ["Slice1", "Slice2"],
        ["Slice1"],
        ["ReLU2"],
        ["Eltwise1"],
    ]
    assert net.layer[4].eltwise_param.operation == caffe_pb2.EltwiseParameter.MAX
    quiet = L.Silence(a, b, ntop=0)
    assert [layer.name for layer in quiet.to_proto().layer][-1] == "Silence1"
    both = refcaffe.to_proto(top, quiet)
    assert [layer.type for layer in both.layer].count("Slice") == 1


def test_fields_of_the_type_and_of_every_layer():
    data = L.Input(shape={"dim": 1})
    with pytest.raises(AttributeError):
        L.Deconvolution(data, num_output=3).to_proto()  # its fields are a convolution's
    layer = L.Deconvolution(data, convolution_param={"num_output": 3, "kernel_size": (2, 3)}).to_proto().layer[1]
    assert list(layer.convolution_param.kernel_size) == [2, 3]
    layer = L.Python(data, module="m", layer="L", param_str="x", name="given").to_proto().layer[1]
    assert (layer.name, layer.python_param.module, layer.python_param.param_str) == ("given", "m", "x")
    assert not L.ReLU(data, relu_param={}).to_proto().layer[1].HasField("relu_param")


def test_mistakes():
    pair = L.DummyData(ntop=2)
    with pytest.raises(TypeError, match=r"^Silence input 0 is not a Top \(type is <class 'tuple'>\)$"):
        L.Silence(pair, ntop=0)
    n = small()
    with pytest.raises(AttributeError):
        n.nothing
    with pytest.raises(KeyError):
        n["nothing"]
    n["other"] = L.ReLU(n["ip"])
    assert n.other is n["other"]
    assert copy.copy(n).to_proto() == n.to_proto()
    with pytest.raises(AttributeError):
        P.NoSuchLayer.MAX


def test_layers_are_a_package_too():
    assert "ReLU" in refcaffe.layer_type_list()
    assert refcaffe.layers.create
    assert isinstance(refcaffe.layers.ReLU(L.Input()), net_spec.Top)
    with pytest.raises(AttributeError):
        refcaffe.layers.nothing


def test_a_net_of_thousands_of_layers():
    top = L.Input(shape={"dim": 1})
    for _ in range(3000):
        top = L.Eltwise(top, top)
    net = top.to_proto()
    assert len(net.layer) == 3001
    assert len(to_text(net)) > 1000
    assert coord_map.coord_map_from_to(top, top) == (None, 1, 0)


# --- coordinates


@given(kernel=st.integers(1, 7), stride=st.integers(1, 4), pad=st.integers(0, 3), dilation=st.integers(1, 3))
def test_a_convolution_and_the_deconvolution_that_undoes_it(kernel, stride, pad, dilation):
    options = {"kernel_size": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    data = L.Input(shape={"dim": [1, 1, 50, 50]})
    conv = L.Convolution(data, num_output=1, **options)
    back = L.Deconvolution(L.ReLU(conv), convolution_param=options)
    axis, scale, shift = coord_map.coord_map_from_to(back, data)
    assert (axis, float(scale[0])) == (1, pytest.approx(1))
    assert float(shift[0]) == pytest.approx(0)
    axis, scale, shift = coord_map.coord_map(conv.fn)
    assert float(scale[0]) == pytest.approx(1 / stride)
    assert float(shift[0]) == pytest.approx((pad - (kernel - 1) * dilation / 2) / stride)
    assert coord_map.inverse(coord_map.inverse((axis, scale, shift)))[1:] == (
        pytest.approx(scale),
        pytest.approx(shift),
    )


def fcn(pad, up=2, kernel=3):
    n = refcaffe.NetSpec()
    n.data = L.Input(shape={"dim": [1, 1, 40, 40]})
    n.conv = L.Convolution(n.data, num_output=1, kernel_size=kernel, pad=pad)
    n.pool = L.Pooling(n.conv, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    n.up = L.Deconvolution(n.pool, convolution_param={"num_output": 1, "kernel_size": 2 * up, "stride": up})
    return n


@pytest.mark.parametrize(("pad", "kernel"), [(1, 3), (2, 5), (5, 3), ([1, 3], [1, 3]), (3, 1)])
def test_the_crop_of_a_map_lies_on_the_image(pad, kernel, tmp_path):
    """Where one pixel of the image is set, there is the middle of what comes out, up to half a pixel of pooling."""
    n = fcn(pad, kernel=kernel)
    n.crop = coord_map.crop(n.up, n.data)
    assert n.crop.fn.params["crop_param"]["axis"] == 2
    (tmp_path / "net").write_text(str(n.to_proto()))
    net = refcaffe.Net(tmp_path / "net", refcaffe.TEST)
    assert net.blobs["crop"].shape == (1, 1, 40, 40)
    weights = net.params["conv"][0].data
    weights[0, 0, weights.shape[2] // 2, weights.shape[3] // 2] = 1
    net.params["up"][0].data[...] = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 16
    net.blobs["data"].data[0, 0, 20, 23] = 1
    out = net.forward()["crop"][0, 0]
    for axis, place in ((1, 20), (0, 23)):
        line = out.sum(axis)
        assert abs(line @ np.arange(40) / line.sum() - place) <= 0.501


def test_maps_that_there_are_not():
    n = fcn(0)
    with pytest.raises(RuntimeError, match="Could not compute map"):
        coord_map.coord_map_from_to(L.InnerProduct(n.up, num_output=1), n.data)
    with pytest.raises(AssertionError, match="scale mismatch"):
        coord_map.crop(*_ends(fcn(1, up=3)))
    with pytest.raises(AssertionError, match="cannot crop negative offset"):
        coord_map.crop(*_ends(fcn(0, kernel=9)))
    with pytest.raises(AssertionError, match="cannot crop noninteger offset"):
        coord_map.crop(*_ends(fcn(4, kernel=2)))
    with pytest.raises(AssertionError, match="legacy"):
        coord_map.coord_map(L.Pooling(n.data, kernel_size=2, stride_h=2).fn)
    with pytest.raises(coord_map.UndefinedMapException):
        coord_map.coord_map(L.Flatten(n.data).fn)
    with pytest.raises(coord_map.AxisMismatchException):
        coord_map.compose((1, 1, 0), (2, 1, 0))
    crop = L.Crop(n.data, n.conv, axis=3, offset=4)
    assert coord_map.coord_map(crop.fn) == (2, 1, -4)


def _ends(n):
    return n.up, n.data
