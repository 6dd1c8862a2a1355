"""Reading LevelDB databases, with nothing but Python: their files are never changed, unlike by LevelDB itself."""

from __future__ import annotations

import errno
import heapq
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import IO

from refcaffe.checks import Checker, CheckError
from refcaffe.data.leveldb_files import Change, Damaged, TableFile, Version, log_changes, mapped, table_changes
from refcaffe.kernels.leveldb import Buffer

_log = logging.getLogger("refcaffe.db_leveldb.cpp")
_check = Checker("db_leveldb.cpp")
_check_cursor = Checker("db_leveldb.hpp")

_LOG = re.compile(r"(\d+)\.log")

# LevelDB opens a database once in a process and once on a machine; so we do.
_open: set[tuple[int, str]] = set()  # with the process, since a forked one holds no locks
_lock = threading.RLock()


def failed(source: str, status: str) -> CheckError:
    """The error of an opening that ended with this status."""
    text = f"Check failed: status.ok() Failed to open leveldb {source}\n{status}"
    return CheckError(text, _check.file).within(f"LevelDB '{source}'")


@contextmanager
def _told(error: Callable[[str], CheckError]) -> Iterator[None]:
    """Say of what goes wrong inside what LevelDB says of it."""
    try:
        yield
    except Damaged as damage:
        raise error(f"Corruption: {damage}") from None
    except OSError as cause:
        raise error(f"IO error: {cause.filename}: {cause.strerror}") from None


def _acquire(source: str, path: str) -> IO[bytes] | None:
    """Take the lock of a database, in this process and, where its file can be written, among others."""
    name = os.path.join(source, "LOCK")
    with _lock:
        if (os.getpid(), path) in _open:
            raise failed(source, f"IO error: lock {name}: already held by process")
        file: IO[bytes] | None = None
        try:
            file = open(name, "ab")  # noqa: SIM115
            _lock_file(file)
        except OSError as error:
            if file is not None:
                file.close()
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise failed(source, f"IO error: lock {name}: {error.strerror}") from None
            file = None  # nobody can write there
        _open.add((os.getpid(), path))
    return file


def _lock_file(file: IO[bytes]) -> None:
    try:
        import fcntl
    except ImportError:  # Windows
        return
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _release(path: str, file: IO[bytes] | None) -> None:
    with _lock:
        _open.discard((os.getpid(), path))
        if file is not None:
            file.close()


class LevelDbCursor:
    """See ``db.Cursor``. What was in the database when it was opened; nobody writes to it until ``close``."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._record: tuple[bytes, Buffer] | None = None
        self._changes: Iterator[Change] = iter(())
        self._resources = ExitStack()
        if not os.path.exists(self._path("CURRENT")):
            raise failed(source, f"Invalid argument: {source}: does not exist (create_if_missing is false)")
        path = os.path.realpath(source)
        self._resources.callback(_release, path, _acquire(source, path))
        try:
            with _told(lambda status: failed(source, status)):
                self._version = self._read_manifest()
                self._memory = self._replay_logs()
            self.seek_to_first()
        except BaseException:
            self.close()
            raise
        _log.info("Opened leveldb %s", source)

    def _path(self, name: str) -> str:
        return os.path.join(self._source, name)

    def _read_manifest(self) -> Version:
        with open(self._path("CURRENT"), "rb") as file:
            name = file.read()
        if not name.endswith(b"\n"):
            raise Damaged("CURRENT file does not end with newline")
        try:
            manifest = mapped(self._path(os.fsdecode(name[:-1])))
        except FileNotFoundError as error:
            raise Damaged(f"CURRENT points to a non-existent file: {error.filename}: {error.strerror}") from None
        with _within(os.fsdecode(name[:-1])):
            version = Version(manifest)
        missing = [table for tables in version.levels.values() for table in tables.values() if not self._table(table)]
        if missing:
            raise Damaged(f"{len(missing)} missing files; e.g.: {self._path(f'{missing[0].number:06d}.ldb')}")
        return version

    def _table(self, table: TableFile) -> str:
        """Where a table is; empty if nowhere. Old ones are called ``.sst``."""
        names = (self._path(f"{table.number:06d}.{kind}") for kind in ("ldb", "sst"))
        return next(filter(os.path.exists, names), "")

    def _replay_logs(self) -> list[Change]:
        """The changes that are in no table yet, sorted."""
        logs = sorted(int(found[1]) for found in map(_LOG.fullmatch, os.listdir(self._source)) if found)
        changes: list[Change] = []
        for number in filter(self._version.is_live, logs):
            name = f"{number:06d}.log"
            with _within(name):
                changes += log_changes(mapped(self._path(name)))
        return sorted(changes, key=lambda change: change[:2])

    @property
    def valid(self) -> bool:
        return self._record is not None

    def key(self) -> bytes:
        return self._here()[0]

    def value(self) -> Buffer:
        return self._here()[1]

    def _here(self) -> tuple[bytes, Buffer]:
        if self._record is None:
            raise LookupError(f"no record here in LevelDB '{self._source}'")
        return self._record

    def next(self) -> None:
        last = None if self._record is None else self._record[0]
        with _told(self._broken):
            for key, _, value in self._changes:
                if key == last:  # an older value of the key before
                    continue
                last = key
                if value is not None:
                    self._record = key, value
                    return
        self._record = None

    def _broken(self, status: str) -> CheckError:
        error = CheckError(f"Check failed: iter_->status().ok() {status}", _check_cursor.file)
        return error.within(f"LevelDB '{self._source}'")

    def seek_to_first(self) -> None:
        self._record = None
        levels = self._version.levels
        young = sorted(levels.get(0, {}).values(), reverse=True)  # may overlap, the others may not
        old = (sorted(tables.values(), key=lambda table: table.first) for level, tables in levels.items() if level)
        runs = [iter(self._memory), *(self._run([table]) for table in young), *map(self._run, old)]
        self._changes = heapq.merge(*runs, key=lambda change: change[:2])
        self.next()

    def _run(self, tables: list[TableFile]) -> Iterator[Change]:
        """The changes in tables, one after the other; each is opened when it is its turn."""
        for table in tables:
            path = self._table(table) or self._path(f"{table.number:06d}.ldb")
            with _within(os.path.basename(path)):
                yield from table_changes(mapped(path))

    def close(self) -> None:
        self._record, self._changes, self._memory = None, iter(()), []
        self._resources.close()

    def __del__(self) -> None:
        if hasattr(self, "_resources"):
            self.close()


@contextmanager
def _within(name: str) -> Iterator[None]:
    """Name the file in what is said of damage."""
    try:
        yield
    except Damaged as damage:
        raise Damaged(f"{name}: {damage}") from None
