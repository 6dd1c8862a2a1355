"""The ``engine`` field that some parameter messages have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refcaffe.checks import Checker

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter

_check = Checker("layer_factory.cpp")

CUDNN = 2  # in every one of the messages


def check_engine(param: LayerParameter, engine: int) -> None:
    """Refuse cuDNN, which is not there. First thing in a layer's ``__init__``, before ``blobs`` are read."""
    if engine == CUDNN:
        _check.fatal(f"Layer {param.name} has unknown engine.")
