"""Caffe's log from Python. Everything refcaffe says goes through ``logging``, as ``refcaffe.<Caffe's source file>``."""

from __future__ import annotations

import logging

from refcaffe.glog import log_to_stderr

_log = logging.getLogger("refcaffe._caffe.cpp")
_handler: logging.Handler | None = None


def init_log(level: int = 0, stderr: bool = True) -> None:
    """Print log lines of ``level`` (0 info, 1 warning, 2 error, 3 fatal) and above on standard error, as Caffe does.

    With ``stderr`` false Caffe writes files, and prints errors alone; refcaffe prints errors alone.
    """
    global _handler
    if _handler is not None:
        logging.getLogger("refcaffe").removeHandler(_handler)
    _handler = log_to_stderr()
    _handler.setLevel((max(level, 0 if stderr else 2) + 2) * 10)


def log(text: str) -> None:
    """Write a line to the log."""
    _log.info("%s", text, stacklevel=2)
