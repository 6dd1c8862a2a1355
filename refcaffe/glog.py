"""Log lines as Caffe's logging library prints them, on standard error, so that log parsers of Caffe read them."""

from __future__ import annotations

import contextlib
import logging
import os
import platform
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


class _StderrHandler(logging.Handler):
    """Writes to whatever standard error is at the time: a progress line puts itself in its place."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


def log_to_stderr() -> logging.Handler:
    """Send everything refcaffe logs to standard error; returns the handler."""
    return _added(_StderrHandler())


def log_to_folder(folder: str) -> logging.Handler:
    """Send it to a new file in a folder too, which the link ``caffe.INFO`` there then names; returns the handler.

    Raises OSError if the file cannot be made.
    """
    now, host, user = time.localtime(), platform.node() or "localhost", os.environ.get("USER", "invalid-user")
    name = f"caffe.{host}.{user}.log.INFO.{time.strftime('%Y%m%d-%H%M%S', now)}.{os.getpid()}"
    with open(os.path.join(folder, name), "w") as file:
        file.write(
            f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S', now)}\nRunning on machine: {host}\n"
            "Log line format: [IWEF]mmdd hh:mm:ss.uuuuuu threadid file:line] msg\n"
        )
    link = os.path.join(folder, "caffe.INFO")
    with contextlib.suppress(OSError):  # a folder without links has the file all the same
        if os.path.islink(link):
            os.unlink(link)
        os.symlink(name, link)
    return _added(logging.FileHandler(os.path.join(folder, name)))


def _added(handler: logging.Handler) -> logging.Handler:
    handler.setFormatter(GlogFormatter())
    logger = logging.getLogger("refcaffe")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler
