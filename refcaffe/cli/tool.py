"""What Caffe's programs around databases share: flags and usage."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import refcaffe
from refcaffe.cli.flags import Flag, Flags, describe, parse


@dataclass(frozen=True)
class Tool:
    """A program that takes flags and ``fewest`` to ``most`` words.

    ``source``: the file that its usage names; ``wrong``: the exit status after too few or too many words.
    """

    source: str
    usage: str
    flags: tuple[Flag, ...]
    fewest: int
    most: int | None
    wrong: int = 1

    @property
    def name(self) -> str:
        return os.path.splitext(os.path.basename(self.source))[0]

    def run(self, words: Sequence[str], work: Callable[[Flags], None]) -> int:
        """Read flags and do the work; returns the exit status."""
        flags = parse(words, self.flags)
        if flags.version:
            print(f"{self.name} version {refcaffe.__version__}")
            return 0
        if flags.errors:
            print("\n".join(flags.errors), file=sys.stderr)
            return 1
        asked = flags.help or flags.helpshort or flags.helpfull
        if asked or len(flags.words) < self.fewest or (self.most is not None and len(flags.words) > self.most):
            print(f"{self.name}: {self.usage}\n\n  Flags from {self.source}:")
            print("\n".join(describe(flag, flags) for flag in self.flags))
            return 0 if asked else self.wrong
        for handler in logging.getLogger("refcaffe").handlers:
            handler.setLevel((flags.minloglevel + 2) * 10)
        work(flags)
        return 0
