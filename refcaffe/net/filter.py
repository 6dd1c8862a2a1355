"""Which layers of a definition are in the net: rules of phase, level and stages."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from refcaffe import context
from refcaffe.checks import Checker
from refcaffe.proto.strings import as_text
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter, NetState, NetStateRule

_check = Checker("net.cpp")
_log = logging.getLogger("refcaffe.net.cpp")


def _broken_part(state: NetState, rule: NetStateRule) -> str | None:
    """What the state lacks for the rule, in words; None if it meets the rule."""
    if rule.HasField("phase") and rule.phase != state.phase:
        return f"The NetState phase ({state.phase}) differed from the phase ({rule.phase})"
    if rule.HasField("min_level") and state.level < rule.min_level:
        return f"The NetState level ({state.level}) is above the min_level ({rule.min_level})"
    if rule.HasField("max_level") and state.level > rule.max_level:
        return f"The NetState level ({state.level}) is above the max_level ({rule.max_level})"
    for stage in rule.stage:
        if stage not in state.stage:
            return f"The NetState did not contain stage '{stage}'"
    for stage in rule.not_stage:
        if stage in state.stage:
            return f"The NetState contained a not_stage '{stage}'"
    return None


def state_meets_rule(state: NetState, rule: NetStateRule, layer_name: str) -> bool:
    """Whether every field given in the rule holds; logs the first that does not."""
    broken = _broken_part(state, rule)
    if broken is not None and context.current().root_solver:
        _log.info("%s specified by a rule in layer %s", broken, layer_name)
    return broken is None


def _included(layer: LayerParameter, state: NetState) -> bool:
    text = "Specify either include rules or exclude rules; not both."
    expression = "layer_param.include_size() == 0 || layer_param.exclude_size() == 0"
    _check(not (layer.include and layer.exclude), expression, text)
    if layer.include:
        return any(state_meets_rule(state, rule, layer.name) for rule in layer.include)
    return not any(state_meets_rule(state, rule, layer.name) for rule in layer.exclude)


def filter_net(param: NetParameter) -> NetParameter:
    """The definition with only those layers whose rules the net's own ``state`` meets."""
    filtered = type(param)()
    filtered.CopyFrom(param)
    del filtered.layer[:]
    for layer in param.layer:
        with telling(partial("layer '{}', rules".format, as_text(layer.name))):
            if _included(layer, param.state):
                filtered.layer.add().CopyFrom(layer)
    return filtered
