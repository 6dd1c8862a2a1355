"""``refcaffe upgrade_net_proto_text`` and its two companions: old definitions in, current ones out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from refcaffe.cli.fatal import print_complaints
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import ParseError, read_binary, read_text, write_binary, write_text
from refcaffe.proto.upgrade import needs_upgrade, upgrade_net, upgrade_solver


def _upgrade_solver(solver: Any, source: str) -> bool:
    upgrade_solver(solver, source)
    return True


def _run(
    tool: str, words: Sequence[str], usage: str, message_class: Any, binary: bool, old: Callable[[Any], bool],
    upgrade: Callable[[Any, str], bool],
) -> int:  # fmt: skip
    """Read, upgrade, write; returns 0, 1 for wrong usage or lost fields, 2 for a file that holds something else.

    Raises CheckError for a file that is not there, and for a definition that cannot be upgraded.
    """
    log = logging.getLogger(f"refcaffe.{tool}.cpp")
    if len(words) != 2:
        log.error("Usage: %s %s", tool, usage)
        return 1
    source, target = words
    name, form = message_class.DESCRIPTOR.name, "binary" if binary else "text"
    try:
        message = (read_binary if binary else read_text)(source, message_class)
    except ParseError as error:
        print_complaints(error)
        log.error("Failed to parse input %s file as %s: %s", form, name, source)
        return 2
    success = True
    if old(message):
        success = upgrade(message, source)
        if not success:
            log.error("Encountered error(s) while upgrading prototxt; see details above.")
    else:
        log.error("File already in latest proto format: %s", source)
    (write_binary if binary else write_text)(message, target)
    log.info("Wrote upgraded %s %s proto to %s", name, form, target)
    return int(not success)


def net_text(words: Sequence[str]) -> int:
    """``upgrade_net_proto_text IN OUT``."""
    usage = "v0_net_proto_file_in net_proto_file_out"
    tool = "upgrade_net_proto_text"
    return _run(tool, words, usage, caffe_pb2.NetParameter, False, needs_upgrade, upgrade_net)


def net_binary(words: Sequence[str]) -> int:
    """``upgrade_net_proto_binary IN OUT``."""
    usage = "v0_net_proto_file_in net_proto_file_out"
    tool = "upgrade_net_proto_binary"
    return _run(tool, words, usage, caffe_pb2.NetParameter, True, needs_upgrade, upgrade_net)


def solver_text(words: Sequence[str]) -> int:
    """``upgrade_solver_proto_text IN OUT``."""
    usage = "old_solver_proto_file_in solver_proto_file_out"
    tool = "upgrade_solver_proto_text"

    def old(solver: Any) -> bool:
        return bool(solver.HasField("solver_type"))

    return _run(tool, words, usage, caffe_pb2.SolverParameter, False, old, _upgrade_solver)
