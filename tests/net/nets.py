"""Small nets for tests."""

from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text


def net_param(text, phase=caffe_pb2.TRAIN):
    param = parse_text(text, caffe_pb2.NetParameter, "test")
    param.state.phase = phase
    return param


def make_net(text, phase=caffe_pb2.TRAIN, **options):
    return Net(net_param(text, phase), **options)


def input_layer(name="x", *dims):
    shape = " ".join(f"dim: {d}" for d in dims or (2, 3))
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {shape} }} }} }}\n'


def inner_product(name, bottom, top=None, outputs=4, extra=""):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{top or name}" {extra} '
        f'inner_product_param {{ num_output: {outputs} weight_filler {{ type: "xavier" }} }} }}\n'
    )
