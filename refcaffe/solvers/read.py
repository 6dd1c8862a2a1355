"""Solver definitions from files."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_text
from refcaffe.proto.strings import as_text, put
from refcaffe.proto.upgrade import upgrade_solver
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import SolverParameter

_log = logging.getLogger("refcaffe.upgrade_proto.cpp")


def _extension(path: str) -> str:
    """From the last dot of the file's name on; a name that begins with its only dot is all extension."""
    name = os.path.basename(path)
    return name[name.rindex(".") :] if "." in name else ""


def read_solver_param(path: str) -> SolverParameter:
    """The definition in a text file, with a ``snapshot_prefix``: by default the file's own name without its ending."""
    with telling(lambda: path):
        param = read_text(path, caffe_pb2.SolverParameter)
        upgrade_solver(param, path)
    if not param.HasField("snapshot_prefix"):
        put(param, "snapshot_prefix", path.removesuffix(_extension(path)))
        _log.info("snapshot_prefix was not specified and is set to %s", param.snapshot_prefix)
    elif os.path.isdir(param.snapshot_prefix):
        name = os.path.basename(path)
        prefix = os.path.join(as_text(param.snapshot_prefix), name.removesuffix(_extension(name)))
        put(param, "snapshot_prefix", prefix)
        _log.info("snapshot_prefix was a directory and is replaced to %s", param.snapshot_prefix)
    return param
