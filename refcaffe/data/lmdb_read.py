"""Reading LMDB databases through py-lmdb."""

from __future__ import annotations

import errno
import logging
import os
import threading
from dataclasses import dataclass
from typing import Any

import lmdb

from refcaffe import context
from refcaffe.data.lmdb_errors import CORRUPTED, os_status_error, status_error, translated
from refcaffe.data.lmdb_pages import all_pages_there

_log = logging.getLogger("refcaffe.db_lmdb.cpp")

_ROOM = 1 << 30  # address space beyond the file's end, for what others may write while it is open


@dataclass
class _Environment:
    env: Any
    key: tuple[int, int]
    users: int = 0


# liblmdb loses its locks if a process opens a file twice, so all cursors of one file share an environment.
# The lock is reentrant since a garbage collection inside may close a cursor.
_environments: dict[tuple[int, int], _Environment] = {}
_lock = threading.RLock()


def _acquire(source: str) -> _Environment:
    path = os.path.join(source, "data.mdb")
    try:
        file = os.stat(path)
    except OSError as error:
        raise os_status_error(error, source) from None
    key = (file.st_dev, file.st_ino)  # not its name, which somebody may have given to a new file
    with _lock:
        if key not in _environments:
            _environments[key] = _Environment(_open(source, file.st_size), key)
        environment = _environments[key]
        environment.users += 1
    return environment


def _release(environment: _Environment) -> None:
    with _lock:
        environment.users -= 1
        if environment.users == 0 and _environments.get(environment.key) is environment:
            del _environments[environment.key]
            environment.env.close()


def _after_fork() -> None:
    """A forked process must not use what its parent opened; py-lmdb forgets it without touching it."""
    global _lock
    _lock = threading.RLock()
    for environment in _environments.values():
        environment.env.close()
    _environments.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _open(source: str, file_size: int) -> Any:
    options: dict[str, Any] = {"readonly": True, "create": False, "map_size": file_size + _ROOM}
    try:
        try:
            env = lmdb.open(source, **options)
        except lmdb.Error as error:
            if not str(error).endswith(os.strerror(errno.EACCES)):
                raise
            _log.warning("Permission denied. Trying with MDB_NOLOCK ...")
            env = lmdb.open(source, lock=False, **options)
    except lmdb.Error as error:
        raise translated(error, source) from None
    promised = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
    # Reading what a file has lost would kill the process; but last pages without content may not be written.
    if file_size < promised and not all_pages_there(os.path.join(source, "data.mdb")):
        env.close()
        where = f"data.mdb ends after {file_size} bytes of {promised}: cut off?"
        raise status_error(*CORRUPTED, source).within(where)
    return env


class LmdbCursor:
    """See ``db.Cursor``. Its read transaction, and so the state that it sees, lasts until ``close``."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.valid = False
        self._environment: _Environment | None = _acquire(source)
        self._transaction: Any = None
        self._cursor: Any = None
        try:
            # Buffers, not copies: nothing moves or vanishes while the transaction lasts.
            self._transaction = self._environment.env.begin(buffers=True)
            self._cursor = self._transaction.cursor()
            self.seek_to_first()
        except lmdb.Error as error:
            self.close()
            raise translated(error, source) from None
        except BaseException:
            self.close()
            raise
        if context.current().root_solver:
            _log.info("Opened lmdb %s", source)

    def key(self) -> bytes:
        return bytes(self._cursor.key())

    def value(self) -> memoryview:
        value: memoryview = self._cursor.value()
        return value

    def next(self) -> None:
        self._seek("next")

    def seek_to_first(self) -> None:
        self._seek("first")

    def _seek(self, where: str) -> None:
        try:
            self.valid = getattr(self._cursor, where)()
        except lmdb.Error as error:
            raise translated(error, self._source) from None

    def close(self) -> None:
        environment, self._environment = self._environment, None
        if environment is None:
            return
        self.valid = False
        if self._cursor is not None:
            self._cursor.close()
        if self._transaction is not None:
            self._transaction.abort()
        self._cursor = self._transaction = None
        _release(environment)

    def __del__(self) -> None:
        if getattr(self, "_environment", None) is not None:
            self.close()
