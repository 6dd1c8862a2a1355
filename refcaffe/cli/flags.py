"""Command-line flags as Caffe's flag library reads them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import NoReturn


@dataclass(frozen=True)
class Flag:
    """A flag with its type (``str``, ``int`` or ``bool``), default and description."""

    name: str
    default: str | int | bool
    help: str


FLAGS = (
    Flag("gpu", "", "run in GPU mode on the given device IDs separated by ',', or 'all'"),
    Flag("solver", "", "the solver definition (text)"),
    Flag("model", "", "the model definition (text)"),
    Flag("phase", "", "network phase (TRAIN or TEST), for 'time' only"),
    Flag("level", 0, "network level"),
    Flag("stage", "", "network stages (not to be confused with phase), separated by ','"),
    Flag("snapshot", "", "the snapshot solver state to resume training from"),
    Flag("weights", "", "the pretrained weights to finetune, separated by ','; not together with snapshot"),
    Flag("iterations", 50, "the number of iterations to run"),
    Flag("sigint_effect", "stop", "what SIGINT (Ctrl-C) does: snapshot, stop or none"),
    Flag("sighup_effect", "snapshot", "what SIGHUP does: snapshot, stop or none"),
    Flag("logtostderr", True, "accepted for old scripts: logs always go to standard error"),
    Flag("alsologtostderr", True, "accepted for old scripts: logs always go to standard error"),
    Flag("minloglevel", 0, "log nothing below this level: 0 INFO, 1 WARNING, 2 ERROR"),
)


class Flags:
    """The values of all flags, as attributes, and the words that are no flags, in ``words``."""

    gpu: str
    solver: str
    model: str
    phase: str
    level: int
    stage: str
    snapshot: str
    weights: str
    iterations: int
    sigint_effect: str
    sighup_effect: str
    minloglevel: int

    def __init__(self, words: list[str]) -> None:
        self.words = words
        for flag in FLAGS:
            setattr(self, flag.name, flag.default)

    @property
    def stages(self) -> list[str]:
        """The stages; without the flag one empty stage, as upstream has it."""
        return self.stage.split(",")


def _fail(message: str) -> NoReturn:
    print(f"ERROR: {message}", file=sys.stderr)
    raise SystemExit(1)


def _value(flag: Flag, text: str) -> str | int | bool:
    kind = {str: "string", int: "int32", bool: "bool"}[type(flag.default)]
    illegal = f"illegal value '{text}' specified for {kind} flag '{flag.name}'"
    if isinstance(flag.default, bool):
        lower = text.lower()
        if lower in ("1", "t", "true", "y", "yes"):
            return True
        return False if lower in ("0", "f", "false", "n", "no") else _fail(illegal)
    if isinstance(flag.default, int):
        try:
            number = int(text, 16 if text[:2].lower() == "0x" else 10)
        except ValueError:
            _fail(illegal)
        return number if -(2**31) <= number < 2**31 else _fail(illegal)
    return text


def parse(arguments: list[str]) -> Flags:
    """Read flags of any form: ``-name value``, ``--name value``, ``--name=value``, and ``--noname`` for switches.

    Unknown flags and bad values end the program with status 1 and the flag library's message.
    """
    known = {flag.name: flag for flag in FLAGS}
    flags = Flags([])
    rest = iter(arguments)
    for argument in rest:
        if argument == "--":
            flags.words += rest
            break
        if not argument.startswith("-") or argument == "-":
            flags.words.append(argument)
            continue
        name, equals, text = argument.lstrip("-").partition("=")
        flag = known.get(name)
        if flag is None and name.startswith("no") and isinstance(getattr(known.get(name[2:]), "default", None), bool):
            setattr(flags, name[2:], False)
            continue
        if flag is None:
            _fail(f"unknown command line flag '{name}'")
        if not equals and isinstance(flag.default, bool):
            text = "true"
        elif not equals:
            following = next(rest, None)
            if following is None:
                _fail(f"flag '{argument}' is missing its argument; flag description: {flag.help}")
            text = following
        setattr(flags, flag.name, _value(flag, text))
    return flags
