"""Command-line flags as Caffe's flag library reads, refuses and describes them."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

Value = str | int | bool


@dataclass(frozen=True)
class Flag:
    """A flag with its type (``str``, ``int`` or ``bool``), default and description."""

    name: str
    default: Value
    help: str

    @property
    def kind(self) -> str:
        """The name of its type in messages."""
        return {str: "string", int: "int32", bool: "bool"}[type(self.default)]

    def read(self, text: str) -> Value | None:
        """The value that a text stands for; None if it stands for none."""
        if isinstance(self.default, bool):
            return _BOOLEANS.get(text.lower())
        if isinstance(self.default, str):
            return text
        if not _INTEGER.fullmatch(text):
            return None
        number = int(text, 16 if text[1:2] in ("x", "X") else 10)
        return number if -(2**31) <= number < 2**31 else None


_BOOLEANS = dict.fromkeys(("1", "t", "true", "y", "yes"), True) | dict.fromkeys(("0", "f", "false", "n", "no"), False)
_INTEGER = re.compile(r"0[xX][0-9a-fA-F]+|\s*[+-]?[0-9]+")

# Caffe's own, by name.
CAFFE_FLAGS = (
    Flag(
        "gpu", "",
        "Optional; run in GPU mode on given device IDs separated by ','.Use '-gpu all' to run on all available GPUs. "
        "The effective training batch size is multiplied by the number of devices.",
    ),
    Flag("iterations", 50, "The number of iterations to run."),
    Flag("level", 0, "Optional; network level."),
    Flag("model", "", "The model definition protocol buffer text file."),
    Flag("phase", "", "Optional; network phase (TRAIN or TEST). Only used for 'time'."),
    Flag(
        "sighup_effect", "snapshot",
        "Optional; action to take when a SIGHUP signal is received: snapshot, stop or none.",
    ),
    Flag(
        "sigint_effect", "stop",
        "Optional; action to take when a SIGINT signal is received: snapshot, stop or none.",
    ),
    Flag("snapshot", "", "Optional; the snapshot solver state to resume training."),
    Flag("solver", "", "The solver definition protocol buffer text file."),
    Flag("stage", "", "Optional; network stages (not to be confused with phase), separated by ','."),
    Flag(
        "weights", "",
        "Optional; the pretrained weights to initialize finetuning, separated by ','. "
        "Cannot be set simultaneously with snapshot.",
    ),
)  # fmt: skip
# Those of Caffe's logging library that do something here.
LOG_FLAGS = (
    Flag("log_dir", "", "If given, what is logged is also written to a file of its own in this folder."),
    Flag("minloglevel", 0, "Log nothing below this level: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL."),
)
OWN_FLAGS = (
    LOG_FLAGS[0],
    Flag("log_json", "", "If given, 'train' writes what happens to this file, one JSON object a line."),
    LOG_FLAGS[1],
)
# The rest is taken so that old scripts run: logs go to standard error whatever these say.
_WITHOUT_EFFECT = (
    Flag("alsologtostderr", True, ""), Flag("colorlogtostderr", False, ""), Flag("logtostderr", True, ""),
    Flag("stderrthreshold", 0, ""), Flag("v", 0, ""), Flag("vmodule", "", ""),
    Flag("help", False, ""), Flag("helpshort", False, ""), Flag("helpfull", False, ""), Flag("version", False, ""),
)  # fmt: skip


class Flags:
    """The values of all flags, as attributes: those of a program, and what every program knows.

    ``words``: what is no flag; ``given``: names of the flags that were given; ``errors``: what is wrong, a line each.
    """

    gpu: str
    iterations: int
    level: int
    model: str
    phase: str
    sighup_effect: str
    sigint_effect: str
    snapshot: str
    solver: str
    stage: str
    weights: str
    log_dir: str
    log_json: str
    minloglevel: int
    help: bool
    helpshort: bool
    helpfull: bool
    version: bool
    # Of the tools around databases.
    backend: str
    check_size: bool
    encode_type: str
    encoded: bool
    gray: bool
    resize_height: int
    resize_width: int
    shuffle: bool

    def __init__(self, own: Iterable[Flag] = (*CAFFE_FLAGS, *OWN_FLAGS)) -> None:
        self.words: list[str] = []
        self.given: set[str] = set()
        self.errors: list[str] = []
        self._known = {flag.name: flag for flag in (*own, *LOG_FLAGS, *_WITHOUT_EFFECT)}
        for flag in self._known.values():
            setattr(self, flag.name, flag.default)
        for flag in LOG_FLAGS:  # Caffe's logging library looks there too
            setattr(self, flag.name, flag.read(os.environ.get(f"GLOG_{flag.name}", "")) or flag.default)

    def find(self, name: str) -> Flag | None:
        """A flag by its name, dashes for underlines allowed."""
        return self._known.get(name) or self._known.get(name.replace("-", "_"))

    @property
    def stages(self) -> list[str]:
        """The stages; without the flag one empty stage, as upstream has it."""
        return self.stage.split(",")


def _unknown(flags: Flags, name: str) -> str:
    meant = flags.find(name[2:]) if name.startswith("no") else None
    if meant is not None:
        return f"boolean value ({name}) specified for {meant.kind} command line flag"
    return f"unknown command line flag '{name}'"


def parse(arguments: Iterable[str], own: Iterable[Flag] = (*CAFFE_FLAGS, *OWN_FLAGS)) -> Flags:
    """Read flags of any form: ``-name value``, ``--name value``, ``--name=value``, and ``--noname`` for switches.

    ``own``: those of the program.

    Nothing is raised: what is wrong is in ``errors``, in order of the flags' names.
    """
    flags = Flags(own)
    wrong: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            flags.words += rest
            break
        if not argument.startswith("-") or argument == "-":
            flags.words.append(argument)
            continue
        name, equals, text = argument.removeprefix("-").removeprefix("-").partition("=")
        flag = flags.find(name)
        if flag is None and name.startswith("no") and isinstance(getattr(flags.find(name[2:]), "default", None), bool):
            flag, equals, text = flags.find(name[2:]), "=", "0"
        if flag is None:
            wrong[name] = _unknown(flags, name)
            continue
        if not equals and isinstance(flag.default, bool):
            text = "1"
        elif not equals:
            following = next(rest, None)
            if following is None:
                described = f"; flag description: {flag.help}" if flag.help else ""
                wrong[name] = f"flag '{argument}' is missing its argument{described}"
                break
            text = following
        value = flag.read(text)
        if value is None:
            wrong[flag.name] = f"illegal value '{text}' specified for {flag.kind} flag '{flag.name}'"
        else:
            setattr(flags, flag.name, value)
            flags.given.add(flag.name)
    flags.errors = [f"ERROR: {wrong[name]}" for name in sorted(wrong)]
    return flags


def describe(flag: Flag, flags: Flags) -> str:
    """A flag as it stands in the usage, in lines of less than 80 characters."""
    shown = (f'"{value}"' if isinstance(value, str) else str(value).lower() for value in
             (flag.default, getattr(flags, flag.name)))  # fmt: skip
    facts = [f"type: {flag.kind}", f"default: {next(shown)}"]
    if flag.name in flags.given:
        facts.append(f"currently: {next(shown)}")
    # A fact is not broken in two.
    text = " ".join([f"-{flag.name} ({flag.help})", *(fact.replace(" ", "\0") for fact in facts)])
    lines = textwrap.wrap(
        text, 79, initial_indent=" " * 4, subsequent_indent=" " * 6, break_long_words=False, break_on_hyphens=False
    )
    return "\n".join(lines).replace("\0", " ")
