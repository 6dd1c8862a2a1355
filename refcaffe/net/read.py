"""Net definitions and trained nets from files, brought up to date."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_text, read_trained
from refcaffe.proto.upgrade import upgrade_net
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter
    from refcaffe.proto.trained import Numbers


def check_file(path: str | os.PathLike[str]) -> None:
    """RuntimeError, as pycaffe raises it, if a file cannot be opened."""
    try:
        os.close(os.open(path, os.O_RDONLY))
    except OSError as error:
        raise RuntimeError(f"Could not open file {os.fspath(path)}") from error


def read_net_param(path: str) -> NetParameter:
    """The definition in a text file."""
    with telling(lambda: path):
        param = read_text(path, caffe_pb2.NetParameter)
        upgrade_net(param, path)
    return param


def read_net_in_state(path: str, phase: int, level: int = 0, stages: Sequence[str] = ()) -> NetParameter:
    """The definition in a text file, for a net in this phase, at this level and in these stages."""
    param = read_net_param(path)
    param.state.phase = phase
    param.state.level = level
    param.state.stage.extend(stages)
    return param


def read_trained_net(path: str) -> tuple[NetParameter, list[Numbers]]:
    """The definition and parameters in a binary file.

    The numbers of the parameters, in the order of the layers' ``blobs``, may be apart from the definition; None, or an
    end of the list, stands for those that are in it. No upgrade changes that order.
    """
    with telling(lambda: path):
        param, numbers = read_trained(path, caffe_pb2.NetParameter)
        upgrade_net(param, path)
    return param, numbers
