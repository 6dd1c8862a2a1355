"""Pictures of nets."""

import stat
import xml.etree.ElementTree as ElementTree

import cv2
import numpy as np
import pytest

from refcaffe import draw
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text

NET = r"""
name: "a \"net\""
layer { name: "d" type: "Data" top: "x" top: "y" include { phase: TRAIN } data_param { batch_size: 8 } }
layer { name: "d" type: "Input" top: "x" exclude { phase: TRAIN } }
layer { name: "c<1>" type: "Convolution" bottom: "x" top: "c" param { lr_mult: 0.5 } convolution_param {
  num_output: 4 kernel_size: 3 stride: 2 } }
layer { name: "r" type: "ReLU" bottom: "c" top: "c" }
layer { name: "p" type: "Pooling" bottom: "c" top: "p" pooling_param { pool: AVE kernel_size: 2 pad: 1 } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" inner_product_param { num_output: 10 } }
layer { name: "l" type: "SoftmaxWithLoss" bottom: "ip" bottom: "y" top: "l" }
"""


@pytest.fixture
def net():
    return parse_text(NET, caffe_pb2.NetParameter, "test")


@pytest.fixture
def no_dot(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))


def test_the_graph(net):
    graph = draw.net_graph(net, "LR", display_lrm=True)
    assert graph.nodes["p_Pooling"].label == "p\n(Pooling AVE)\nkernel size: 2\nstride: 1\npad: 1"
    assert graph.nodes["c<1>_Convolution"].label.endswith("kernel size: 3\nstride: 2\npad: 0\nlr mult: 0.5, 1.0")
    assert ("c_blob", "r_ReLU", "") in graph.edges
    assert ("d_Data", "y_blob", "Batch 8") in graph.edges
    assert ("ip_InnerProduct", "ip_blob", "10") in graph.edges
    assert graph.nodes["x_blob"].is_blob
    colors = {name: graph.nodes[name].color for name in ("r_ReLU", "p_Pooling", "l_SoftmaxWithLoss")}
    assert colors == {"r_ReLU": "#90EE90", "p_Pooling": "#FF9900", "l_SoftmaxWithLoss": "#6495ED"}
    assert "\n" not in draw.net_graph(net, "TB").nodes["p_Pooling"].label
    assert not any(label for _, _, label in draw.net_graph(net, "TB", label_edges=False).edges)


def test_phases(net):
    assert "d_Input" not in draw.net_graph(net, "LR", phase=caffe_pb2.TRAIN).nodes
    assert "d_Data" not in draw.net_graph(net, "LR", phase=caffe_pb2.TEST).nodes
    net.layer[0].exclude.add()
    with pytest.raises(ValueError, match="both include and exclude"):
        draw.net_graph(net, "LR", phase=caffe_pb2.TEST)


def test_labels_that_cannot_be(net):
    with pytest.raises(ValueError, match="ReLU layers do not have a learning rate multiplier"):
        draw.get_layer_lr_mult(net.layer[3])
    for _ in range(3):
        net.layer[5].param.add()
    with pytest.raises(ValueError, match="Could not parse"):
        draw.get_layer_lr_mult(net.layer[5])


def test_graphviz_text(net):
    text = draw.draw_net(net, "LR", "dot").decode()
    assert text.startswith('digraph "a \\"net\\"" {\n  rankdir=LR;\n')
    assert '"c<1>_Convolution" -> "c_blob" [label="4"];' in text
    assert 'label="r\\n(ReLU)"' in text


@pytest.mark.parametrize("rankdir", ["LR", "RL", "TB", "BT"])
def test_svg_without_graphviz(net, no_dot, tmp_path, rankdir):
    draw.draw_net_to_file(net, tmp_path / "net.svg", rankdir)
    root = ElementTree.fromstring((tmp_path / "net.svg").read_text())
    boxes = [element for element in root if element.tag.endswith("rect")]
    assert len(boxes) == len(draw.net_graph(net, rankdir).nodes)
    width, height = float(root.get("width")), float(root.get("height"))
    assert (width > height) == (rankdir in ("LR", "RL"))
    corners = []
    for box in boxes:
        x, y, w, h = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width
        assert 0 <= y <= y + h <= height
        corners.append((x, y, x + w, y + h))
    for i, a in enumerate(corners):
        for b in corners[:i]:
            assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], "boxes lie on each other"
    first, last = corners[0], corners[-1]
    assert {"LR": first[0] < last[0], "RL": first[0] > last[0], "TB": first[1] < last[1], "BT": first[1] > last[1]}[
        rankdir
    ]
    assert "c&lt;1&gt;" in (tmp_path / "net.svg").read_text()


def test_png_without_graphviz(net, no_dot):
    image = cv2.imdecode(np.frombuffer(draw.draw_net(net, "TB"), np.uint8), cv2.IMREAD_COLOR)
    assert image.shape[0] > image.shape[1] > 100
    assert (image == [0, 153, 255]).all(2).any()  # a pooling
    assert cv2.imdecode(np.frombuffer(draw.draw_net(caffe_pb2.NetParameter(), "LR"), np.uint8), 1) is not None


def test_other_formats_need_graphviz(net, no_dot, tmp_path):
    with pytest.raises(RuntimeError, match=r"a \.pdf picture needs Graphviz's program dot"):
        draw.draw_net_to_file(net, tmp_path / "net.pdf")
    assert not list(tmp_path.iterdir())


def test_graphviz_is_used_where_it_is(net, no_dot, tmp_path):
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\nif [ $1 = -Tno ]; then echo 'what is no?' >&2; exit 1; fi\necho drawn $1\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    assert draw.draw_net(net, "LR", "pdf") == b"drawn -Tpdf\n"
    with pytest.raises(RuntimeError, match="what is no"):
        draw.draw_net(net, "LR", "no")
