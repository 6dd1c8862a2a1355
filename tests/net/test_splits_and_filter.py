"""Definitions before any layer exists: rules, splits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.checks import CheckError
from refcaffe.net.filter import filter_net
from refcaffe.net.splits import insert_splits
from refcaffe.proto import caffe_pb2
from tests.net.nets import inner_product, input_layer, net_param


@given(st.integers(1, 5))
def test_every_reader_gets_a_top_of_its_own(readers):
    param = net_param(input_layer() + "".join(inner_product(f"ip{i}", "x") for i in range(readers)))
    result = insert_splits(param)
    split = [layer for layer in result.layer if layer.type == "Split"]
    assert len(split) == (readers > 1)
    if readers > 1:
        assert split[0].name == "x_x_0_split"
        assert list(split[0].top) == [f"x_x_0_split_{k}" for k in range(readers)]
        assert [layer.bottom[0] for layer in result.layer[2:]] == list(split[0].top)
    assert insert_splits(result) == result


def test_a_split_follows_the_last_layer_that_made_the_blob():
    relu = 'layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }'
    text = input_layer() + inner_product("ip", "x") + relu + inner_product("a", "ip") + inner_product("b", "ip")
    names = [layer.name for layer in insert_splits(net_param(text)).layer]
    assert names == ["x", "ip", "relu", "ip_relu_0_split", "a", "b"]


def test_an_explicit_loss_weight_moves_to_the_split():
    text = input_layer() + inner_product("ip", "x", extra="loss_weight: 2") + inner_product("a", "ip")
    result = insert_splits(net_param(text))
    split = result.layer[2]
    assert list(split.loss_weight) == [2, 0]
    assert not result.layer[1].loss_weight
    assert result.layer[3].bottom[0] == "ip_ip_0_split_1"


def test_a_bottom_nobody_makes_is_refused():
    with pytest.raises(CheckError, match=r"Unknown bottom blob 'y' \(layer 'ip', bottom index 0\)"):
        insert_splits(net_param(input_layer() + inner_product("ip", "y")))


RULES = [
    ("include { phase: TRAIN }", True),
    ("include { phase: TEST }", False),
    ("exclude { phase: TRAIN }", False),
    ("include { phase: TEST } include { stage: 'a' }", True),
    ("include { stage: 'a' stage: 'b' }", True),
    ("include { stage: 'c' }", False),
    ("include { not_stage: 'a' }", False),
    ("include { not_stage: 'c' }", True),
    ("include { min_level: 2 }", True),
    ("include { min_level: 3 }", False),
    ("include { max_level: 1 }", False),
    ("include { }", True),
    ("exclude { }", False),
]


@pytest.mark.parametrize(("rules", "stays"), RULES)
def test_rules(rules, stays):
    param = net_param('layer { name: "l" type: "Silence" %s }' % rules.replace("'", '"'))  # noqa: UP031
    param.state.stage.extend(["a", "b"])
    param.state.level = 2
    assert bool(filter_net(param).layer) == stays


def test_both_kinds_of_rules_are_refused():
    param = net_param('layer { name: "l" type: "Silence" include { } exclude { } }')
    with pytest.raises(CheckError, match="not both"):
        filter_net(param)


def test_filtering_leaves_the_given_definition_alone():
    param = net_param('layer { name: "l" type: "Silence" include { phase: TEST } }')
    before = caffe_pb2.NetParameter()
    before.CopyFrom(param)
    filter_net(param)
    assert param == before
