"""The entry point: finds the command and turns failed checks into Caffe's fatal line."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable
from typing import NoReturn

import refcaffe
from refcaffe.alias import as_caffe, install_as_caffe
from refcaffe.checks import CheckError
from refcaffe.cli import fatal, process
from refcaffe.cli.flags import CAFFE_FLAGS, OWN_FLAGS, Flags, describe, parse
from refcaffe.glog import log_to_folder, log_to_stderr

# Caffe's own commands: Caffe's flags, Caffe's log. `refcaffe.cli.NAME` has run(flags).
BREW = {
    "train": "train or finetune a model",
    "test": "score a model",
    "device_query": "show GPU diagnostic information",
    "time": "benchmark model execution time",
}
# Caffe's other programs: words and flags of their own, Caffe's log. Each is a function of a module in `refcaffe.cli`.
TOOLS = {
    "convert_imageset": ("convert_imageset.run", "make a database of the images in a list"),
    "compute_image_mean": ("compute_image_mean.run", "compute the mean image of a database"),
    "extract_features": ("extract_features.run", "write blobs of a trained net into databases"),
    "convert_mnist_data": ("convert_mnist_data.run", "make a database of the files of MNIST"),
    "upgrade_net_proto_text": ("upgrade.net_text", "bring a net definition (text) up to date"),
    "upgrade_net_proto_binary": ("upgrade.net_binary", "bring a net with its weights (binary) up to date"),
    "upgrade_solver_proto_text": ("upgrade.solver_text", "bring a solver definition up to date"),
}
# Commands of ours: each has its own options, see `refcaffe COMMAND --help`. `refcaffe.cli.NAME` has main(words).
OURS = {
    "plot": "draw loss, test scores and learning rate of training logs",
    "demo": "train a small net on handwritten digits and run the conformance cases",
    "conformance": "compare refcaffe with recordings of original Caffe",
    "trace": "show what a pass of a net moves between host and device",
    "dump": "write every blob of a pass as .npy files, here or in another Caffe",
    "compare": "show the first layer where two such dumps part",
}


def _usage(flags: Flags) -> str:
    commands = {**BREW, **{name: text for name, (_, text) in TOOLS.items()}, **OURS}
    lines = ["refcaffe: command line brew", "usage: refcaffe <command> <args>", "", "commands:"]
    lines += [f"  {name:<15} {text}" for name, text in commands.items()]
    # The heading by which Caffe's usage lists them.
    lines += ["", "  Flags from tools/caffe.cpp:", *(describe(flag, flags) for flag in CAFFE_FLAGS)]
    lines += ["", "  Flags from refcaffe:", *(describe(flag, flags) for flag in OWN_FLAGS)]
    return "\n".join(lines)


def _logging(work: Callable[[], int], flags: Flags) -> int:
    """Do something while everything is logged as Caffe does; a failed check is a fatal line and its status."""
    logger = logging.getLogger("refcaffe")
    level, propagate = logger.level, logger.propagate
    handlers = [log_to_stderr()]
    try:
        if flags.log_dir:
            try:
                handlers.append(log_to_folder(flags.log_dir))
            except OSError as error:
                print(f"Could not create logging file: {error.strerror}", file=sys.stderr)
        for handler in handlers:
            handler.setLevel((flags.minloglevel + 2) * 10)
        return work()
    except CheckError as error:
        return fatal.report(error)
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)
        logger.propagate = propagate


def _action(command: str, flags: Flags) -> int:
    if command not in BREW:
        log = logging.getLogger("refcaffe.caffe.cpp")
        log.error("Available caffe actions:")
        for name in sorted(BREW):
            log.error("\t%s", name)
        raise CheckError(f"Unknown action: {command}", "caffe.cpp")
    with as_caffe():  # Python layers import caffe
        return int(importlib.import_module(f"refcaffe.cli.{command}").run(flags))


def _brew(arguments: list[str]) -> int:
    flags = parse(arguments)
    if flags.help or flags.helpshort or flags.helpfull:
        print(_usage(flags))
        return 0
    if flags.version:
        print(f"refcaffe version {refcaffe.__version__}")
        return 0
    if flags.errors:
        print("\n".join(flags.errors), file=sys.stderr)
        return 1
    if len(flags.words) != 1:
        print(_usage(flags))
        return 0
    return _logging(lambda: _action(flags.words[0], flags), flags)


def _tool(name: str, words: list[str]) -> int:
    module, _, function = TOOLS[name][0].partition(".")
    return _logging(lambda: int(getattr(importlib.import_module(f"refcaffe.cli.{module}"), function)(words)), Flags())


def _ours(command: str, arguments: list[str]) -> int:
    try:
        return int(importlib.import_module(f"refcaffe.cli.{command}").main(arguments))
    except (CheckError, OSError) as error:
        print(f"refcaffe {command}: {error}", file=sys.stderr)
        return 1


def main(arguments: list[str]) -> int:
    """Run a command line; returns the exit status: 0, 1 for bad flags, 134 for a failed check."""
    first = arguments[0] if arguments else ""
    try:
        if first in ("-h", "help"):
            print(_usage(Flags()))
            return 0
        if first == "conformance":
            from conformance.cli import main as conformance_main

            return int(conformance_main(arguments[1:]))
        if first in OURS:
            return _ours(first, arguments[1:])
        if first in TOOLS:
            return _tool(first, arguments[1:])
        return _brew(arguments)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nobody reads any more: not an error
        return 141


def program() -> NoReturn:
    """Be the command line's process, to its end."""
    install_as_caffe()  # what modules of Python layers import
    process.run(main)
