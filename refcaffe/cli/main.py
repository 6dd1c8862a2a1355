"""The entry point: finds the command and turns failed checks into Caffe's fatal line."""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback

import refcaffe
from refcaffe.checks import CheckError
from refcaffe.cli.flags import FLAGS, parse
from refcaffe.cli.glog import log_to_stderr

# Caffe's own commands: Caffe's flags, Caffe's log.
BREW = {
    "train": "train or finetune a model",
    "test": "score a model",
}
# Commands of ours: each has its own options, see `refcaffe COMMAND --help`.
OURS = {
    "plot": "draw loss, test scores and learning rate of training logs",
    "demo": "train a small net on handwritten digits and run the conformance cases",
    "conformance": "compare refcaffe with recordings of original Caffe",
}
ABORTED = 134  # what a shell reports of a process that a failed check ended


def _usage() -> str:
    lines = ["refcaffe: original Caffe's semantics, in Python", "usage: refcaffe <command> <args>", "", "commands:"]
    lines += [f"  {name:<15} {text}" for name, text in {**BREW, **OURS}.items()]
    lines += ["", f"  flags of {', '.join(BREW)} (one dash or two):"]
    lines += [f"    -{flag.name:<16} {flag.help} (default: {flag.default!r})" for flag in FLAGS]
    return "\n".join(lines)


def _brew(arguments: list[str]) -> int:
    flags = parse(arguments)
    if len(flags.words) != 1:
        print(_usage())
        return 0
    command = flags.words[0]
    handler = log_to_stderr()
    handler.setLevel((flags.minloglevel + 2) * 10)
    log = logging.getLogger("refcaffe.caffe.cpp")
    try:
        if command not in BREW:
            log.error("Available caffe actions:")
            for name in sorted(BREW):
                log.error("\t%s", name)
            raise CheckError(f"Unknown action: {command}", "caffe.cpp")
        return int(importlib.import_module(f"refcaffe.cli.{command}").run(flags))
    except CheckError as error:
        logging.getLogger(f"refcaffe.{error.file or 'caffe.cpp'}").critical("%s", error)
        return ABORTED
    finally:
        logging.getLogger("refcaffe").removeHandler(handler)


def _ours(command: str, arguments: list[str]) -> int:
    try:
        return int(importlib.import_module(f"refcaffe.cli.{command}").main(arguments))
    except (CheckError, OSError) as error:
        print(f"refcaffe {command}: {error}", file=sys.stderr)
        return 1


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status: 0, 1 for bad flags, 134 for a failed check, 130 for Ctrl-C."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = arguments[0] if arguments else ""
    try:
        if first in ("--version", "-version"):
            print(f"refcaffe version {refcaffe.__version__}")
            return 0
        if first in ("--help", "-help", "-h", "help"):
            print(_usage())
            return 0
        if first == "conformance":
            from conformance.cli import main as conformance_main

            return int(conformance_main(arguments[1:]))
        if first in OURS:
            return _ours(first, arguments[1:])
        return _brew(arguments)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more: not an error
        return 141
    except ImportError:
        traceback.print_exc()
        return 1
