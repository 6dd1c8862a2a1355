"""What a failed check, or a file that cannot be parsed, looks like on standard error."""

from __future__ import annotations

import logging
import sys

from refcaffe.checks import CheckError

ABORTED = 134  # what a shell reports of a process that a failed check ended


def print_complaints(error: CheckError) -> None:
    """What the protobuf library says about a file, in its own form."""
    for complaint in getattr(error, "complaints", ()):
        print(f"[libprotobuf ERROR google/protobuf/text_format.cc] {complaint}", file=sys.stderr)


def report(error: CheckError) -> int:
    """Log Caffe's fatal line, with where it happened in place of a stack trace; returns the exit status."""
    print_complaints(error)
    logging.getLogger(f"refcaffe.{error.file or 'caffe.cpp'}").critical("%s", error.message.rstrip())
    for where in error.where:
        if where not in getattr(error, "complaints", ()):
            print(f"    @ {where}", file=sys.stderr)
    return ABORTED
