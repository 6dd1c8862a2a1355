"""The kinds of cases. Module ``kinds/<kind>.py`` is the runner of that kind, found by its name, imported when needed.

A runner has ``play(case, engine) -> Recording``, which carries out what the case gives in the order that its FORMAT
page states, and ``judge(case, got, findings)``, which compares that with ``case.recorded``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from typing import NamedTuple

from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.outcome import Findings, Unsupported

Play = Callable[[Case, Engine], Recording]
Judge = Callable[[Case, Recording, Findings], None]


class Kind(NamedTuple):
    """A runner."""

    play: Play
    judge: Judge


def supported() -> list[str]:
    """The kinds that have a runner."""
    return sorted(module.name for module in pkgutil.iter_modules(__path__))


def find(kind: str) -> Kind:
    """The runner of a kind. Raises Unsupported if there is none."""
    if kind not in supported():
        raise Unsupported(f"the suite has no runner for kind {kind!r}")
    module = importlib.import_module(f"{__name__}.{kind}")
    return Kind(module.play, module.judge)
