"""Reading LMDB databases through py-lmdb."""

from __future__ import annotations

import errno
import logging
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import lmdb

from refcaffe import context
from refcaffe.data.lmdb_errors import CORRUPTED, os_status_error, status_error, translated
from refcaffe.data.lmdb_tree import EMPTY, Damaged, Meta, Tree, read_meta, read_page_size

_log = logging.getLogger("refcaffe.db_lmdb.cpp")

_TRIES = 10
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


def _acquire(source: str, file: BinaryIO) -> _Environment:
    """The environment of the folder whose data file is open as ``file``."""
    status = os.fstat(file.fileno())
    key = status.st_dev, status.st_ino  # not its name, which somebody may have given to a new file
    with _lock:
        if key not in _environments:
            _environments[key] = _Environment(_open(source, status.st_size), key)
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
    return env


@contextmanager
def _told(source: str) -> Iterator[None]:
    """Say of what is wrong inside the file what liblmdb says of the little that it finds out."""
    try:
        yield
    except (Damaged, struct.error) as error:
        raise status_error(*CORRUPTED, source).within(f"data.mdb: {error}") from None


class LmdbCursor:
    """See ``db.Cursor``. Its read transaction, and so the state that it sees, lasts until ``close``."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._record: tuple[bytes, memoryview] | None = None
        self._transaction: Any = None
        self._environment: _Environment | None = None
        try:
            with open(os.path.join(source, "data.mdb"), "rb") as file:
                with _told(source):
                    page_size = read_page_size(file)
                self._environment = _acquire(source, file)
                self._tree = self._begin(file, page_size)
            self.seek_to_first()
        except OSError as error:
            self.close()
            raise os_status_error(error, source) from None
        except BaseException:
            self.close()
            raise
        if context.current().root_solver:
            _log.info("Opened lmdb %s", source)

    def _begin(self, file: BinaryIO, page_size: int) -> Tree:
        """Begin the transaction, by which writers know what to leave alone, and find the state that it sees."""
        for _ in range(_TRIES):
            try:
                self._transaction = self._environment.env.begin()  # type: ignore[union-attr]
            except lmdb.Error as error:
                raise translated(error, self._source) from None
            pages = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            number = self._transaction.id()
            with _told(self._source):
                meta = read_meta(pages, page_size, number)
                if meta.transaction == number:
                    return self._checked(pages, page_size, meta)
            self._transaction.abort()  # others may have committed twice in this moment
        raise status_error(*CORRUPTED, self._source).within("data.mdb: transactions do not agree")

    @staticmethod
    def _checked(pages: memoryview, page_size: int, meta: Meta) -> Tree:
        tree = Tree(pages, page_size, meta.root)
        # Rather now than in the middle of a training; but last pages without content may not be written.
        if len(pages) < (meta.last_page + 1) * page_size:
            deque(tree.records(), maxlen=0)
        return tree

    @property
    def valid(self) -> bool:
        return self._record is not None

    def key(self) -> bytes:
        return self._here()[0]

    def value(self) -> memoryview:
        return self._here()[1]

    def _here(self) -> tuple[bytes, memoryview]:
        if self._record is None:
            raise LookupError(f"no record here in LMDB '{self._source}'")
        return self._record

    def next(self) -> None:
        try:  # for every record: entering a with block costs more than the rest
            self._record = next(self._records, None)
        except (Damaged, struct.error):
            with _told(self._source):
                raise

    def seek_to_first(self) -> None:
        self._records = self._tree.records()
        self.next()

    def close(self) -> None:
        environment, self._environment = self._environment, None
        if environment is None:
            return
        if self._transaction is not None:
            self._transaction.abort()
        self._record, self._records, self._tree = None, iter(()), EMPTY
        _release(environment)

    def __del__(self) -> None:
        self.close()
