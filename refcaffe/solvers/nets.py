"""The nets of a solver: which definitions they come from, and in which state."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from refcaffe import context
from refcaffe.checks import Checker, CheckError
from refcaffe.net import Net
from refcaffe.net.read import read_net_param
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import as_text

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter, NetState, SolverParameter

_check = Checker("solver.cpp")
_log = logging.getLogger("refcaffe.solver.cpp")

TRAIN_FIELDS = ("net", "net_param", "train_net", "train_net_param")


def _info(text: str, *args: Any) -> None:
    if context.current().root_solver:
        _log.info(text, *args)


def _set_state(param: NetParameter, phase: int, own: NetState | None) -> None:
    """Phase, overridden by the definition's own state, overridden by the solver's."""
    state = caffe_pb2.NetState(phase=phase)
    state.MergeFrom(param.state)
    if own is not None:
        state.MergeFrom(own)
    param.state.CopyFrom(state)


def _load_weights(net: Net, param: SolverParameter) -> None:
    for listed in param.weights:
        for name in as_text(listed).split(","):
            _log.info("Finetuning from %s", name.strip())
            net.copy_from(name.strip())


def _make(definition: NetParameter, param: SolverParameter, dtype: Any) -> Net:
    net = Net(definition, dtype=dtype)
    try:
        _load_weights(net, param)
    except BaseException:
        net.close()
        raise
    return net


def make_train_net(param: SolverParameter, dtype: Any) -> Net:
    """The train net, from exactly one of the four fields, with the solver's ``weights``."""
    given = [name for name in TRAIN_FIELDS if param.HasField(name)]
    names = ", ".join(TRAIN_FIELDS)
    text = f"SolverParameter must specify a train net using one of these fields: {names}"
    _check.ge(len(given), 1, "num_train_nets >= 1", text)
    text = f"SolverParameter must not contain more than one of these fields specifying a train_net: {names}"
    _check.le(len(given), 1, "num_train_nets <= 1", text)
    name, value = given[0], getattr(param, given[0])
    if name.endswith("net_param"):
        _info("Creating training net specified in %s.", name)
        definition = caffe_pb2.NetParameter()
        definition.CopyFrom(value)
    else:
        what = "net file" if name == "net" else "train_net file"
        _info("Creating training net from %s: %s", what, value)
        definition = read_net_param(value)
    _set_state(definition, caffe_pb2.TRAIN, param.train_state)
    return _make(definition, param, dtype)


def _test_definitions(param: SolverParameter) -> list[tuple[str, NetParameter | str]]:
    """What each test net is made of: where it stands in the solver, and the definition or the file's name."""
    found: list[tuple[str, NetParameter | str]] = [("test_net_param", given) for given in param.test_net_param]
    found += [(f"test_net file: {path}", path) for path in param.test_net]
    generic = param.HasField("net_param") + param.HasField("net")
    _check.le(generic, 1, "num_generic_nets <= 1", "Both net_param and net_file may not be specified.")
    text = "test_iter must be specified for each test network."
    if generic:
        _check.ge(len(param.test_iter), len(found), "param_.test_iter_size() >= num_test_nets", text)
    else:
        _check.eq(len(param.test_iter), len(found), "param_.test_iter_size() == num_test_nets", text)
    # Every test_iter left over stands for one more test of the common net.
    remaining = len(param.test_iter) - len(found)
    if param.HasField("net_param"):
        found += [("net_param", param.net_param)] * remaining
    elif param.HasField("net"):
        found += [(f"net file: {param.net}", param.net)] * remaining
    return found


def make_test_nets(param: SolverParameter, dtype: Any) -> list[Net]:
    """The test nets in order, each with the solver's ``weights``."""
    found = _test_definitions(param)
    if param.test_state:
        text = "test_state must be unspecified or specified once per test net."
        _check.eq(len(param.test_state), len(found), "param_.test_state_size() == num_test_net_instances", text)
    if found:
        _check.gt(param.test_interval, 0, "param_.test_interval() > 0")
    nets: list[Net] = []
    try:
        for i, (source, given) in enumerate(found):
            definition = caffe_pb2.NetParameter()
            definition.CopyFrom(given if isinstance(given, caffe_pb2.NetParameter) else read_net_param(given))
            _set_state(definition, caffe_pb2.TEST, param.test_state[i] if param.test_state else None)
            _log.info("Creating test net (#%d) specified by %s", i, source)
            nets.append(_make(definition, param, dtype))
            nets[-1].debug_info = param.debug_info
    except BaseException as error:
        for net in nets:
            net.close()
        if isinstance(error, CheckError):
            error.within(f"test net #{len(nets)}")
        raise
    return nets
