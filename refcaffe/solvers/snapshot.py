"""Snapshots: a model file and a file of the solver's state, written whole or not at all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refcaffe.checks import Checker, CheckError
from refcaffe.net.read import read_trained_net_param
from refcaffe.net.weights import copy_trained_layers
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_binary, write_binary

if TYPE_CHECKING:
    from refcaffe.solvers.sgd import SGDSolver

_check = Checker("sgd_solver.cpp")
_log = logging.getLogger("refcaffe.sgd_solver.cpp")
_log_solver = logging.getLogger("refcaffe.solver.cpp")


def write(solver: SGDSolver) -> None:
    """Write model, then state, under the solver's ``snapshot_prefix`` and iteration."""
    if solver.param.snapshot_format != caffe_pb2.SolverParameter.BINARYPROTO:
        raise CheckError("snapshot_format: HDF5 is not supported yet; use BINARYPROTO", "solver.cpp")
    model = solver.snapshot_filename(".caffemodel")
    _log_solver.info("Snapshotting to binary proto file %s", model)
    solver.net.save(model, solver.param.snapshot_diff)
    state = caffe_pb2.SolverState(iter=solver.iter, learned_net=model, current_step=solver.current_step)
    for blob in solver.history:
        blob.to_proto(state.history.add())
    path = solver.snapshot_filename(".solverstate")
    _log.info("Snapshotting solver state to binary proto file %s", path)
    write_binary(state, path)


def restore(solver: SGDSolver, path: str) -> None:
    """Take iteration, parameters, step and history from a state file and the model file it names."""
    if path.endswith(".h5"):
        raise CheckError(f"{path}: solver states in HDF5 are not supported yet", "sgd_solver.cpp")
    state = read_binary(path, caffe_pb2.SolverState)
    solver.iter = state.iter
    if state.HasField("learned_net"):
        copy_trained_layers(solver.net, read_trained_net_param(state.learned_net))
    solver.current_step = state.current_step
    text = "Incorrect length of history blobs."
    _check.eq(len(state.history), len(solver.history), "state.history_size() == history_.size()", text)
    _log.info("SGDSolver: restoring history")
    for blob, proto in zip(solver.history, state.history, strict=True):
        blob.from_proto(proto)
