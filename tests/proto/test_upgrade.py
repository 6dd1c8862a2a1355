"""Old definitions: laws that hold for all of them. The recorded ones are conformance cases."""

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe.checks import CheckError
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text
from refcaffe.proto.upgrade import needs_upgrade, upgrade_net, upgrade_solver
from refcaffe.proto.upgrade_v0 import TYPES as V0_TYPES
from refcaffe.proto.upgrade_v1 import layer_type

V1 = caffe_pb2.V1LayerParameter
V1_TYPES = V1.LayerType.keys()
V1_MESSAGES = [field.name for field in V1.DESCRIPTOR.fields if field.name.endswith("_param")]
V0_FIELDS = [
    field.name
    for field in caffe_pb2.V0LayerParameter.DESCRIPTOR.fields
    if field.name not in ("name", "type", "blobs", "blobs_lr", "weight_decay", "new_num", "new_channels")
]
TRANSFORMATIONS = {"scale": "scale", "meanfile": "mean_file", "cropsize": "crop_size", "mirror": "mirror"}


def net(text):
    return parse_text(text, caffe_pb2.NetParameter, "net")


def upgraded(text):
    param = net(text)
    assert upgrade_net(param, "net")
    return param


def test_the_types_of_v1_keep_their_names():
    def plain(name):
        return name.replace("_", "").lower()

    names = {old: layer_type(V1.LayerType.Value(old)) for old in V1_TYPES}
    assert names.pop("NONE") == ""
    assert names.pop("SOFTMAX_LOSS") == "SoftmaxWithLoss"
    assert {plain(old): plain(new) for old, new in names.items()} == {plain(old): plain(old) for old in names}
    assert len(set(names.values())) == len(names)


@given(st.sampled_from(V1_TYPES), st.sets(st.sampled_from(V1_MESSAGES)), st.booleans())
def test_a_v1_layer_keeps_its_messages(kind, messages, mirror):
    old = V1(name="l", type=kind, bottom=["a"], top=["b", "c"], loss_weight=[0.5])
    for name in messages:
        getattr(old, name).SetInParent()
    old.transform_param.mirror = mirror
    old.include.add(phase=caffe_pb2.TEST)
    param = caffe_pb2.NetParameter(layers=[old])
    assert upgrade_net(param, "net")
    (new,) = param.layer
    assert not param.layers
    assert (new.name, new.type) == ("l", layer_type(old.type))
    for name in ("bottom", "top", "loss_weight", "include"):
        assert list(getattr(new, name)) == list(getattr(old, name))
    kept = {field.name: value for field, value in new.ListFields() if field.name.endswith("_param")}
    assert kept == {name: getattr(old, name) for name in {*messages, "transform_param"}}


LISTS = st.lists(st.integers(0, 3), max_size=4)


@given(LISTS, LISTS, LISTS, LISTS)
def test_the_lists_of_a_v1_layer_become_specs(names, modes, rates, decays):
    modes = [mode % 2 for mode in modes]
    old = V1(param=[f"p{n}" for n in names], blob_share_mode=modes, blobs_lr=rates, weight_decay=decays)
    param = caffe_pb2.NetParameter(layers=[old])
    assert upgrade_net(param, "net")
    specs = param.layer[0].param
    assert len(specs) == max(map(len, (names, modes, rates, decays)))
    fields = (("name", old.param), ("share_mode", old.blob_share_mode), ("lr_mult", old.blobs_lr),
              ("decay_mult", old.weight_decay))  # fmt: skip
    for field, values in fields:
        assert [getattr(spec, field) for spec in specs if spec.HasField(field)] == list(values)


def v0_layer(kind, fields):
    layer = caffe_pb2.V0LayerParameter(type=kind)
    for name in fields:
        field = layer.DESCRIPTOR.fields_by_name[name]
        if field.message_type is not None:
            getattr(layer, name).SetInParent()
        else:
            setattr(layer, name, {9: "text", 8: True, 14: 1, 2: 2.0}.get(field.type, 3))
    if layer.HasField("hdf5_output_param"):
        layer.hdf5_output_param.file_name = "f"
    return layer


@pytest.mark.parametrize("kind", sorted(V0_TYPES))
def test_a_field_of_v0_moves_or_is_an_error(kind, caplog):
    caplog.set_level(logging.ERROR, "refcaffe")
    for name in V0_FIELDS:
        caplog.clear()
        param = caffe_pb2.NetParameter(layers=[V1(layer=v0_layer(kind, [name]))])
        moved = upgrade_net(param, "net")
        found = [field.name for field, _ in param.layer[0].ListFields() if field.name != "type"]
        errors = [record.getMessage() for record in caplog.records if "Unknown parameter" in record.getMessage()]
        assert moved == (len(found) == 1) == (not errors), name
        if name in TRANSFORMATIONS:
            assert param.layer[0].transform_param.HasField(TRANSFORMATIONS[name])
        if errors:
            shown = "shuffle" if name == "shuffle_images" else name
            assert errors == [f"Unknown parameter {shown} for layer type {kind}"]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(sorted(V0_TYPES)), st.sets(st.sampled_from(V0_FIELDS), max_size=4)), max_size=3)
)
def test_what_is_upgraded_needs_no_upgrade(layers):
    param = caffe_pb2.NetParameter(name="n", layers=[V1(layer=v0_layer(*layer)) for layer in layers])
    upgrade_net(param, "net")
    assert not needs_upgrade(param)
    before = caffe_pb2.NetParameter()
    before.CopyFrom(param)
    assert upgrade_net(param, "net")
    assert param == before


def test_padding_goes_into_the_layer_that_reads_it():
    param = upgraded("""
        input: "x" input_dim: 1 input_dim: 1 input_dim: 4 input_dim: 4
        layers { bottom: "x" top: "p" layer { name: "p" type: "padding" pad: 2 } }
        layers { bottom: "p" top: "c" layer { name: "c" type: "conv" pad: 1 num_output: 3 kernelsize: 3 } }
        layers { bottom: "p" top: "m" layer { name: "m" type: "pool" kernelsize: 3 } }""")
    assert [layer.name for layer in param.layer] == ["input", "c", "m"]
    assert [layer.bottom[0] for layer in param.layer[1:]] == ["x", "x"]
    assert (list(param.layer[1].convolution_param.pad), param.layer[2].pooling_param.pad) == ([2], 2)


def test_old_data_fields_win_over_the_new_ones():
    param = upgraded("""
        layers { type: DATA data_param { source: "s" scale: 2 } transform_param { scale: 1 crop_size: 5 } }
        layers { type: IMAGE_DATA }  layers { type: RELU relu_param { negative_slope: 1 } }""")
    data, images, relu = param.layer
    assert (data.transform_param.scale, data.transform_param.crop_size, data.data_param.HasField("scale")) == (2, 5, 0)
    assert images.HasField("transform_param") and images.HasField("image_data_param")
    assert not relu.HasField("transform_param")


def test_inputs_become_one_layer():
    shapes = upgraded('input: "a" input: "b" input_shape { dim: 2 } input_shape { dim: 3 dim: 4 } input_dim: 9')
    (layer,) = shapes.layer
    assert (layer.name, layer.type, list(layer.top)) == ("input", "Input", ["a", "b"])
    assert [list(shape.dim) for shape in layer.input_param.shape] == [[2], [3, 4]]
    assert not (shapes.input or shapes.input_shape or shapes.input_dim)
    bare = upgraded('input: "a" layer { name: "l" }')
    assert [layer.name for layer in bare.layer] == ["l"]
    for few in ('input: "a" input_dim: 1 input_dim: 2', 'input: "a" input: "b" input_shape { dim: 1 }'):
        with pytest.raises(CheckError, match="index < current_size_"):
            upgrade_net(net(few), "net")


def test_three_specs_of_batch_norm_are_set_to_zero():
    spec = "param { name: 'a' lr_mult: 2 decay_mult: 3 }"
    param = upgraded(f'layer {{ type: "BatchNorm" {spec * 3} }} layer {{ type: "BatchNorm" {spec * 2} }}')
    assert [(p.name, p.lr_mult, p.decay_mult) for p in param.layer[0].param] == [("a", 0, 0)] * 3
    assert [(p.name, p.lr_mult, p.decay_mult) for p in param.layer[1].param] == [("a", 2, 3)] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('layers { type: RELU } layer { type: "ReLU" }', "Refusing to upgrade inconsistent NetParameter input"),
        ('layers { layer { type: "conv2" } }', "Unknown layer name: conv2"),
        ('layers { bottom: "q" layer { type: "relu" } }', "Unknown blob input q to layer 0"),
    ],
)
def test_refusals(text, message):
    with pytest.raises(CheckError) as caught:
        upgrade_net(net(text), "net")
    assert caught.value.message.startswith(message)


def test_every_solver_type():
    names = {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}
    found = set()
    for old in caffe_pb2.SolverParameter.SolverType.keys():  # noqa: SIM118 - an enum, not a dictionary
        solver = caffe_pb2.SolverParameter(solver_type=old)
        upgrade_solver(solver, "solver")
        assert solver.type.upper() == old
        assert not solver.HasField("solver_type")
        found.add(solver.type)
    assert found == names
