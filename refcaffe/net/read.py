"""Net definitions and trained nets from files, brought up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_binary, read_text
from refcaffe.proto.upgrade import upgrade_net

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter


def read_net_param(path: str) -> NetParameter:
    """The definition in a text file."""
    param = read_text(path, caffe_pb2.NetParameter)
    upgrade_net(param, path)
    return param


def read_trained_net_param(path: str) -> NetParameter:
    """The definition and parameters in a binary file."""
    param = read_binary(path, caffe_pb2.NetParameter)
    upgrade_net(param, path)
    return param
