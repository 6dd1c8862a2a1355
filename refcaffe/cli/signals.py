"""What SIGINT and SIGHUP ask of a running solver."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType
from typing import Any

from refcaffe.cli.brew import check
from refcaffe.solvers import SolverAction

_EFFECTS = {"stop": SolverAction.STOP, "snapshot": SolverAction.SNAPSHOT, "none": SolverAction.NONE}


def _effect(name: str) -> SolverAction:
    if name not in _EFFECTS:
        check.fatal(f'Invalid signal effect "{name}" was specified')
    return _EFFECTS[name]


class SignalActions:
    """Catches both signals inside a ``with`` block; a solver asks ``requested`` what they mean."""

    def __init__(self, sigint_effect: str, sighup_effect: str) -> None:
        self._actions = {"SIGHUP": _effect(sighup_effect), "SIGINT": _effect(sigint_effect)}
        self._pending: set[str] = set()
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalActions:
        for name in self._actions:
            if hasattr(signal, name):  # Windows has no SIGHUP
                number = getattr(signal, name)
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._pending.add(signal.Signals(number).name)

    def requested(self) -> SolverAction:
        """The action of a signal that came since the last call; SIGHUP is looked at first."""
        for name, action in self._actions.items():
            if name in self._pending:
                self._pending.remove(name)
                return action
        return SolverAction.NONE
