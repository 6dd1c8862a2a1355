"""Log lines as Caffe's logging library prints them, on standard error, so that log parsers of Caffe read them."""

from __future__ import annotations

import logging
import sys
import time

_LETTERS = {logging.DEBUG: "I", logging.INFO: "I", logging.WARNING: "W", logging.ERROR: "E", logging.CRITICAL: "F"}


class GlogFormatter(logging.Formatter):
    """``I1130 09:50:02.123456  4321 solver.cpp:218] text``: level, date, time, process, file, line."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.localtime(record.created)
        micros = int(record.created % 1 * 1e6)
        stamp = time.strftime("%m%d %H:%M:%S", at)
        file = record.name.removeprefix("refcaffe.")
        letter = _LETTERS.get(record.levelno, "I")
        return f"{letter}{stamp}.{micros:06d} {record.process:5d} {file}:{record.lineno}] {record.getMessage()}"


def log_to_stderr() -> logging.Handler:
    """Send everything refcaffe logs to standard error; returns the handler."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(GlogFormatter())
    logger = logging.getLogger("refcaffe")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler
