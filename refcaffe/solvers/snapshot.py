"""Snapshots: a model file and a file of the solver's state, written whole or not at all."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refcaffe import hdf5
from refcaffe.checks import Checker, CheckError
from refcaffe.net.read import read_trained_net
from refcaffe.net.weights import copy_trained_layers
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import read_binary, write_binary
from refcaffe.proto.strings import put
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.solvers.sgd import SGDSolver

_check = Checker("sgd_solver.cpp")
_log = logging.getLogger("refcaffe.sgd_solver.cpp")
_log_solver = logging.getLogger("refcaffe.solver.cpp")


def write(solver: SGDSolver) -> None:
    """Write model, then state, under the solver's ``snapshot_prefix`` and iteration, in its ``snapshot_format``."""
    if solver.param.snapshot_format == caffe_pb2.SolverParameter.HDF5:
        model = solver.snapshot_filename(".caffemodel.h5")
        _log_solver.info("Snapshotting to HDF5 file %s", model)
        solver.net.save_hdf5(model, solver.param.snapshot_diff)
        _write_hdf5(solver, model)
        return
    model = solver.snapshot_filename(".caffemodel")
    _log_solver.info("Snapshotting to binary proto file %s", model)
    solver.net.save(model, solver.param.snapshot_diff)
    state = caffe_pb2.SolverState(iter=solver.iter, current_step=solver.current_step)
    put(state, "learned_net", model)
    for blob in solver.history:
        blob.to_proto(state.history.add())
    path = solver.snapshot_filename(".solverstate")
    _log.info("Snapshotting solver state to binary proto file %s", path)
    write_binary(state, path)


def _write_hdf5(solver: SGDSolver, model: str) -> None:
    path = solver.snapshot_filename(".solverstate.h5")
    _log.info("Snapshotting solver state to HDF5 file %s", path)
    with hdf5.created(path, _cannot("file_hid", f"Couldn't open {path} to save solver state.")) as file:
        hdf5.save_int(file, "iter", solver.iter)
        hdf5.save_string(file, "learned_net", model)
        hdf5.save_int(file, "current_step", solver.current_step)
        history = hdf5.create_group(file, "history", _cannot("history_hid", f"Error saving solver state to {path}."))
        for i, blob in enumerate(solver.history):
            hdf5.save_blob(history, str(i), blob.cpu_data())


def restore(solver: SGDSolver, path: str) -> None:
    """Take iteration, parameters, step and history from a state file, HDF5 if named so, and the model file it names."""
    with telling(lambda: f"restoring solver state from {path}"):
        (_restore_hdf5 if path.endswith(".h5") else _restore_binary)(solver, path)


def _restore_binary(solver: SGDSolver, path: str) -> None:
    state = read_binary(path, caffe_pb2.SolverState)
    solver.iter = state.iter
    if state.HasField("learned_net"):
        copy_trained_layers(solver.net, *read_trained_net(state.learned_net))
    solver.current_step = state.current_step
    text = "Incorrect length of history blobs."
    _check.eq(len(state.history), len(solver.history), "state.history_size() == history_.size()", text)
    _log.info("SGDSolver: restoring history")
    for i, (blob, proto) in enumerate(zip(solver.history, state.history, strict=True)):
        blob.from_proto(proto)
        # Upstream writes beyond the memory when it updates.
        text = f"history {i} is not of the size of its parameter"
        expression = "history_[i]->count() == net_params[i]->count()"
        _check.eq(blob.count, solver.parameter_of(i).count, expression, text)


def _restore_hdf5(solver: SGDSolver, path: str) -> None:
    with hdf5.opened(path, _cannot("file_hid", f"Couldn't open solver state file {path}")) as file:
        solver.iter = hdf5.load_int(file, "iter")
        if hdf5.has_link(file, "learned_net"):
            solver.net.copy_from(hdf5.load_string(file, "learned_net"))
        solver.current_step = hdf5.load_int(file, "current_step")
        history = hdf5.open_group(file, "history", _cannot("history_hid", f"Error reading history from {path}"))
        text = "Incorrect length of history blobs."
        _check.eq(hdf5.count_links(history), len(solver.history), "state_history_size == history_.size()", text)
        for i, blob in enumerate(solver.history):
            hdf5.load_blob(history, str(i), blob)


def _cannot(handle: str, text: str) -> CheckError:
    return CheckError(f"Check failed: {handle} >= 0 (-1 vs. 0) {text}", "sgd_solver.cpp")
