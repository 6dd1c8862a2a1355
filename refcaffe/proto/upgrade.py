"""Old definitions brought up to date: what every net and solver goes through when it is read."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from refcaffe.checks import Checker
from refcaffe.proto import upgrade_v0, upgrade_v1
from refcaffe.proto.strings import put

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter, SolverParameter

_check = Checker("upgrade_proto.cpp")
_log = logging.getLogger("refcaffe.upgrade_proto.cpp")

_SOLVER_TYPES = ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam")  # by number in the old enum


def _needs_batch_norm_upgrade(net: NetParameter) -> bool:
    return any(layer.type == "BatchNorm" and len(layer.param) == 3 for layer in net.layer)


def needs_upgrade(net: NetParameter) -> bool:
    """Whether a net holds anything of an old format."""
    # V1 nets hold V0 layers and old data fields too: any `layers` is old.
    return len(net.layers) > 0 or len(net.input) > 0 or _needs_batch_norm_upgrade(net)


def _upgrade_input(net: NetParameter) -> None:
    """Make the net's ``input`` fields an Input layer, put first; without shapes just drop them."""
    if net.input_shape or net.input_dim:
        layers = list(net.layer)
        net.ClearField("layer")
        layer = net.layer.add(name="input", type="Input")
        layer.input_param.SetInParent()
        for i, name in enumerate(net.input):
            put(layer, "top", name)
            if net.input_shape:
                _check.lt(i, len(net.input_shape), "index < current_size_", f"input '{name}' has no input_shape")
                layer.input_param.shape.add().CopyFrom(net.input_shape[i])
            else:
                dims = net.input_dim[4 * i : 4 * i + 4]
                _check.eq(len(dims), 4, "index < current_size_", f"input '{name}' has no four input_dim")
                layer.input_param.shape.add().dim.extend(dims)
        net.layer.extend(layers)
    for field in ("input", "input_shape", "input_dim"):
        net.ClearField(field)


def _upgrade_batch_norm(net: NetParameter) -> None:
    """Keep solvers from learning BatchNorm's statistics, where the definition has the three ``param`` of old."""
    for layer in net.layer:
        if layer.type == "BatchNorm" and len(layer.param) == 3:
            for spec in layer.param:
                spec.lr_mult = 0
                spec.decay_mult = 0


def upgrade_net(net: NetParameter, source: str) -> bool:
    """Bring a net up to date, in place; ``source`` is named in the log. False if something had to be dropped."""
    success = True
    attempt = "Attempting to upgrade input file specified using deprecated %s: %s"
    done = "Successfully upgraded file specified using deprecated %s"
    future = "Note that future Caffe releases will only support %s"
    if upgrade_v0.needs_upgrade(net):
        _log.info(attempt, "V0LayerParameter", source)
        if upgrade_v0.upgrade(net):
            _log.info(done, "V0LayerParameter")
        else:
            success = False
            _log.error(
                "Warning: had one or more problems upgrading V0NetParameter to NetParameter (see above); "
                "continuing anyway."
            )
        _log.warning(
            "Note that future Caffe releases will not support V0NetParameter; use ./build/tools/upgrade_net_proto_text "
            "for prototxt and ./build/tools/upgrade_net_proto_binary for model weights upgrade this and any other net "
            "protos to the new format."
        )
    if upgrade_v1.needs_data_upgrade(net):
        _log.info(attempt, "transformation parameters", source)
        upgrade_v1.upgrade_data(net)
        _log.info(done, "data transformation parameters.")
        _log.warning(future, "transform_param messages for transformation fields.")
    if net.layers:
        _log.info(attempt, "V1LayerParameter", source)
        if upgrade_v1.upgrade(net):
            _log.info(done, "V1LayerParameter")
        else:
            success = False
            _log.error("Warning: had one or more problems upgrading V1LayerParameter (see above); continuing anyway.")
    if net.input:
        _log.info(attempt, "input fields", source)
        _upgrade_input(net)
        _log.info(done, "input fields.")
        _log.warning(future, "input layers and not input fields.")
    if _needs_batch_norm_upgrade(net):
        _log.info("Attempting to upgrade batch norm layers using deprecated params: %s", source)
        _upgrade_batch_norm(net)
        _log.info("Successfully upgraded batch norm layers using deprecated params.")
    return success


def upgrade_solver(solver: SolverParameter, source: str) -> None:
    """Turn the old enum ``solver_type`` into ``type``, in place."""
    if not solver.HasField("solver_type"):
        return
    _log.info("Attempting to upgrade input file specified using deprecated 'solver_type' field (enum)': %s", source)
    text = (
        "Failed to upgrade solver: old solver_type field (enum) and new type field (string) cannot be both specified "
        "in solver proto text."
    )
    _check(not solver.HasField("type"), "!solver_param->has_solver_type() || !solver_param->has_type()", text)
    solver.type = _SOLVER_TYPES[solver.solver_type]
    solver.ClearField("solver_type")
    done = "Successfully upgraded file specified using deprecated 'solver_type' field (enum) to 'type' field (string)."
    _log.info(done)
    _log.warning("Note that future Caffe releases will only support 'type' field (string) for a solver's type.")
