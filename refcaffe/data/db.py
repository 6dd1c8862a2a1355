"""Databases of records, whatever the backend: opening one to walk it, reading and writing it as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Protocol

from refcaffe.checks import CheckError
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import as_text

_FILE, _UNKNOWN = "db.cpp", "Unknown database backend"

Backend = str | int  # a name, "lmdb" or "leveldb", or a value of DataParameter.DB

_NAMES = {caffe_pb2.DataParameter.LMDB: "lmdb", caffe_pb2.DataParameter.LEVELDB: "leveldb"}


class Cursor(Protocol):
    """An open database and a place in it. Records come in the byte order of their keys.

    What was written after the opening is not seen. Used by one thread at a time. Raises CheckError, with the
    database's name, where it is damaged.
    """

    @property
    def valid(self) -> bool:
        """Whether there is a record here; not behind the last one, nor in an empty database."""

    def key(self) -> bytes: ...

    def value(self) -> bytes | memoryview:
        """The record's bytes; a memoryview lives until ``close``, wherever the cursor goes."""

    def next(self) -> None: ...

    def seek_to_first(self) -> None: ...

    def close(self) -> None:
        """Close the database; harmless the second time."""


class Writer(Protocol):
    """A database in the making. It appears when the ``with`` block ends well; else nothing stays of it."""

    def put(self, key: bytes, value: bytes) -> None:
        """Add a record; a key that comes again replaces the value."""

    def commit(self) -> None:
        """Bring what was put to the disk."""

    def __enter__(self) -> Writer: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


def _backend(backend: Backend) -> str:
    name = backend if isinstance(backend, str) else _NAMES.get(backend, "")
    if name not in _NAMES.values():
        raise CheckError(_UNKNOWN, _FILE).within(f"{backend!r} is neither lmdb nor leveldb")
    return name


def open_cursor(source: str, backend: Backend = "lmdb") -> Cursor:
    """Open a database, read only, at its first record. CheckError, naming it, if it is missing or damaged.

    A LevelDB can be opened once at a time.
    """
    source = as_text(source).partition("\0")[0]  # where C takes a name to end
    if _backend(backend) == "leveldb":
        from refcaffe.data.leveldb_read import LevelDbCursor

        return LevelDbCursor(source)
    from refcaffe.data.lmdb_read import LmdbCursor  # imports py-lmdb

    return LmdbCursor(source)


def create(source: str, backend: Backend = "lmdb") -> Writer:
    """A new database to write. CheckError if there is something under its name already."""
    if _backend(backend) == "leveldb":
        from refcaffe.data.leveldb_write import LevelDbWriter

        return LevelDbWriter(source)
    from refcaffe.data.lmdb_write import LmdbWriter  # imports py-lmdb

    return LmdbWriter(source)


def read(source: str, backend: Backend = "lmdb") -> Iterator[tuple[bytes, bytes]]:
    """All records, (key, value), in the byte order of the keys."""
    cursor = open_cursor(source, backend)
    try:
        while cursor.valid:
            yield cursor.key(), bytes(cursor.value())
            cursor.next()
    finally:
        cursor.close()


def write(source: str, records: Iterable[tuple[bytes, bytes]], backend: Backend = "lmdb") -> None:
    """Make a database of (key, value) pairs. It appears whole or, if something fails, not at all."""
    with create(source, backend) as writer:
        for key, value in records:
            writer.put(key, value)
