"""The process of a command line: how it ends, above all by Ctrl-C."""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

_LATER = 0.01  # seconds
_INTERRUPTED = 130  # how a shell tells of SIGINT; the status where there are no signals


class _Interrupt(KeyboardInterrupt):
    """Of Python's own class there are no weak references."""


class _Interrupts:
    """A handler of SIGINT that is not ignored.

    It raises KeyboardInterrupt, as Python's own. That gets lost where it meets a bare ``except``, as there are some in
    what large packages do when they are imported, or a callback. Then it is raised again, until ``over``.
    """

    def __init__(self) -> None:
        self.over = self.fatal = False
        self._raised: set[Any] = set()

    def __call__(self, number: int, frame: FrameType | None) -> NoReturn:
        interrupt = _Interrupt()
        self._raised.add(weakref.ref(interrupt, self._gone))
        try:
            raise interrupt
        finally:
            del interrupt  # its traceback holds this frame

    def _gone(self, interrupt: Any) -> None:
        self._raised.discard(interrupt)
        if not self.over:  # not here: this may be a callback, too
            threading.Timer(_LATER, _thread.interrupt_main).start()

    def end_process(self) -> None:
        """End it by SIGINT, if one was ``fatal``.

        Python does so, too, but not whenever one was: run with -m, it looks at a mark that any text that is executed
        meanwhile, as for a named tuple, sets or deletes.
        """
        if self.fatal and os.name != "nt":
            with suppress(Exception):  # nobody may read it any more
                sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)


def _tell_lost(lost: UnraisableHookArgs) -> None:
    """What Python does with an error in a callback; but interrupts come again."""
    if lost.exc_type is not _Interrupt:
        sys.__unraisablehook__(lost)


def run(main: Callable[[list[str]], int]) -> NoReturn:
    """Give a command line its words, and end the process with the status that it returns.

    Ctrl-C ends the process by SIGINT, as it does Caffe's programs: a shell shows 130, and leaves a loop.
    """
    interrupts = _Interrupts()
    atexit.register(interrupts.end_process)  # before any other, so that it is called behind them
    try:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupts)
            sys.unraisablehook = _tell_lost
        status = main(sys.argv[1:])
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        interrupts.fatal = True
        status = _INTERRUPTED
    finally:
        interrupts.over = True
    sys.exit(status)
