"""Writing LevelDB databases, with nothing but Python: sorted tables and a manifest, which any LevelDB opens."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import IO

from refcaffe.checks import CheckError
from refcaffe.data.leveldb_files import (
    BLOCK,
    COMPARATOR,
    COMPARATOR_TAG,
    FIRST,
    FOOTER,
    FULL,
    LAST,
    LAST_TAG,
    LOG_HEADER,
    LOG_TAG,
    MAGIC,
    MIDDLE,
    NEW_TAG,
    NEXT_FILE_TAG,
    TAG,
    TRAILER,
    VALUE,
)  # fmt: skip
from refcaffe.data.leveldb_read import failed
from refcaffe.kernels.leveldb import masked_crc

_TABLE_BYTES = 64 << 20  # records that are sorted together
_BLOCK_BYTES = 65536
_MANIFEST = 1  # its number; tables follow
_LAST_LEVEL = 6  # where LevelDB leaves tables alone; if they overlap they must be in level 0


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def _string(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _block(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A block whose only restart, from which a reader can begin, is its start."""
    parts: list[bytes] = []
    before = b""
    for key, value in entries:
        differs = (i for i, (a, b) in enumerate(zip(before, key, strict=False)) if a != b)
        shared = next(differs, min(len(before), len(key)))
        parts += (_varint(shared), _varint(len(key) - shared), _varint(len(value)), key[shared:], value)
        before = key
    return b"".join([*parts, bytes(4), b"\1\0\0\0"])


def _logged(record: bytes) -> Iterator[bytes]:
    """A log of one record."""
    room = BLOCK - LOG_HEADER.size
    parts = [record[at : at + room] for at in range(0, len(record), room)]
    for i, part in enumerate(parts):
        kind = (FIRST if i == 0 else LAST if i == len(parts) - 1 else MIDDLE) if len(parts) > 1 else FULL
        yield LOG_HEADER.pack(masked_crc(bytes([kind]) + part), len(part), kind) + part


def _write_table(file: IO[bytes], changes: Iterable[tuple[bytes, bytes]]) -> None:
    """A table of changes, which are sorted."""
    index: list[tuple[bytes, bytes]] = []
    entries: list[tuple[bytes, bytes]] = []

    def append(block: bytes) -> bytes:
        """Write a block; returns its handle."""
        handle = _varint(file.tell()) + _varint(len(block))
        file.write(block)
        file.write(TRAILER.pack(0, masked_crc(block + b"\0")))
        return handle

    size = 0
    for key, value in changes:
        entries.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK_BYTES:
            index.append((key, append(_block(entries))))
            entries, size = [], 0
    if entries:
        index.append((entries[-1][0], append(_block(entries))))
    handles = append(_block([])) + append(_block(index))
    file.write(handles.ljust(FOOTER - TAG.size, b"\0") + TAG.pack(MAGIC))


class LevelDbWriter:
    """See ``db.Writer``. Grows under a temporary name beside its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._partial = f"{source.rstrip(os.sep)}.partial-{os.getpid()}"
        self._pending: dict[bytes, tuple[int, bytes]] = {}
        self._pending_bytes = 0
        self._last = 0  # the number of the last change
        self._tables: list[tuple[int, int, bytes, bytes]] = []  # number, bytes, first key, last key
        if os.path.exists(os.path.join(source, "CURRENT")):
            raise failed(source, f"Invalid argument: {source}: exists (error_if_exists is true)")
        try:
            if os.path.lexists(source) and not stat.S_ISDIR(os.stat(source).st_mode):
                raise NotADirectoryError(0, "Not a directory")
            shutil.rmtree(self._partial, ignore_errors=True)
            os.mkdir(self._partial)
        except OSError as error:
            raise failed(source, f"IO error: lock {os.path.join(source, 'LOCK')}: {error.strerror}") from None

    def put(self, key: bytes, value: bytes) -> None:
        self._last += 1
        self._pending[key] = self._last, value
        self._pending_bytes += len(key) + len(value)
        if self._pending_bytes >= _TABLE_BYTES:
            self._flush()

    def commit(self) -> None:
        """Nobody sees the database before its end: what is put goes to the disk when there is enough of it."""

    def _flush(self) -> None:
        if not self._pending:
            return
        number = _MANIFEST + 1 + len(self._tables)
        # Sorted by keys without their tags: the newest value of each.
        changes = [(key, TAG.pack(last << 8 | VALUE), value) for key, (last, value) in sorted(self._pending.items())]
        with self._file(f"{number:06d}.ldb") as file:
            _write_table(file, ((key + tag, value) for key, tag, value in changes))
            size = file.tell()
        first, last = (changes[i][0] + changes[i][1] for i in (0, -1))
        self._tables.append((number, size, first, last))
        self._pending, self._pending_bytes = {}, 0

    @contextmanager
    def _file(self, name: str) -> Iterator[IO[bytes]]:
        """A new file, which is on the disk when the block ends."""
        path = os.path.join(self._partial, name)
        try:
            with open(path, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            status = f"Failed to write batch to leveldb \nIO error: {path}: {error.strerror}"
            message = f"Check failed: status.ok() {status}"
            raise CheckError(message, "db_leveldb.hpp").within(f"LevelDB '{self._source}'") from error

    def __enter__(self) -> LevelDbWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            shutil.rmtree(self._partial, ignore_errors=True)

    def _finish(self) -> None:
        self._flush()
        keys = [key[: -TAG.size] for _, _, *ends in self._tables for key in ends]
        apart = all(last < first for last, first in zip(keys[1::2], keys[2::2], strict=False))
        level = _LAST_LEVEL if apart else 0
        edit = [_varint(COMPARATOR_TAG), _string(COMPARATOR)]
        numbers = {LOG_TAG: 0, NEXT_FILE_TAG: _MANIFEST + 1 + len(self._tables), LAST_TAG: self._last}
        for tag, number in numbers.items():
            edit += (_varint(tag), _varint(number))
        for number, size, first, last in self._tables:
            edit += (_varint(NEW_TAG), _varint(level), _varint(number), _varint(size), _string(first), _string(last))
        with self._file(f"MANIFEST-{_MANIFEST:06d}") as file:
            file.writelines(_logged(b"".join(edit)))
        with self._file("CURRENT") as file:
            file.write(b"MANIFEST-%06d\n" % _MANIFEST)
        if not os.path.lexists(self._source):
            os.rename(self._partial, self._source)
            return
        for name in sorted(os.listdir(self._partial), key="CURRENT".__eq__):  # without this one there is no database
            os.replace(os.path.join(self._partial, name), os.path.join(self._source, name))
