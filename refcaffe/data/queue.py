"""BlockingQueue: what the threads of the data pipeline hand to each other, first in, first out."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

_log = logging.getLogger("refcaffe.blocking_queue.cpp")
_waits = itertools.count()  # of the whole process, as upstream's static counter
_LOG_EVERY = 1000

_CTRL_C = 0.5  # seconds after which the main thread, where it can only be interrupted between waits, is


class QueueClosed(Exception):
    """The queue was closed: whoever waits for something in it should end."""


class BlockingQueue(Generic[T]):
    """A queue without a limit. ``pop`` and ``peek`` wait for an item, the ``try_`` forms do not.

    ``close`` and ``fail`` end the waiting: closed, ``pop`` and ``peek`` raise QueueClosed at once; failed,
    they raise the error when all items are gone.
    """

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        # Reentrant: the garbage collector may close a queue in a thread that is just using one.
        self._changed = threading.Condition(threading.RLock())
        self._closed = False
        self._error: BaseException | None = None

    def push(self, item: T) -> None:
        """Append an item."""
        with self._changed:
            self._items.append(item)
            self._changed.notify_all()

    def pop(self, log_on_wait: str = "") -> T:
        """Take the first item; wait if there is none: at each thousandth time, log ``log_on_wait``."""
        return self._wait(self._items.popleft, log_on_wait)

    def peek(self) -> T:
        """The first item, which stays; waits if there is none."""
        return self._wait(lambda: self._items[0], "")

    def _wait(self, get: Callable[[], T], log_on_wait: str) -> T:
        patience = _CTRL_C if threading.current_thread() is threading.main_thread() else None
        with self._changed:
            while not self._items or self._closed:
                if self._closed:
                    raise QueueClosed
                if self._error is not None:
                    # The traceback of the failed thread, not that of all who were told before.
                    raise self._error.with_traceback(self._error_traceback)
                if log_on_wait and next(_waits) % _LOG_EVERY == 0:
                    _log.info(log_on_wait)
                    log_on_wait = ""
                self._changed.wait(patience)
            return get()

    def try_pop(self, default: T | None = None) -> T | None:
        """Take the first item; ``default`` if there is none."""
        with self._changed:
            return self._items.popleft() if self._items else default

    def try_peek(self, default: T | None = None) -> T | None:
        """The first item, which stays; ``default`` if there is none."""
        with self._changed:
            return self._items[0] if self._items else default

    def size(self) -> int:
        """How many items there are."""
        with self._changed:
            return len(self._items)

    @property
    def error(self) -> BaseException | None:
        """What ``fail`` was called with."""
        return self._error

    def fail(self, error: BaseException) -> None:
        """Let nobody wait any more: after the items that are there, ``pop`` and ``peek`` raise ``error``."""
        with self._changed:
            self._error, self._error_traceback = error, error.__traceback__
            self._changed.notify_all()

    def close(self) -> None:
        """Wake everybody: ``pop`` and ``peek`` raise QueueClosed from now on, whatever there is."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
