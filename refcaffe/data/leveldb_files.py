"""The files of a LevelDB: logs, the manifest, and sorted tables. All of them are mapped, and every step is checked."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from refcaffe.kernels.leveldb import Buffer, masked_crc, uncompress
from refcaffe.proto.wire import Malformed, Reader

BLOCK = 32768  # of a log
LOG_HEADER = struct.Struct("<IHB")  # checksum, length, type of a part of a record
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
DELETION, VALUE = 0, 1
TAG = struct.Struct("<Q")  # number of the change << 8 | DELETION or VALUE; it ends every key in a table
BATCH_HEADER = struct.Struct("<QI")  # number of the first change, how many
TRAILER = struct.Struct("<BI")  # behind a block of a table: how it is compressed, checksum
FOOTER, MAGIC = 48, 0xDB4775248B80FB57
COMPARATOR = b"leveldb.BytewiseComparator"

# Tags of the manifest's records.
COMPARATOR_TAG, LOG_TAG, NEXT_FILE_TAG, LAST_TAG, COMPACT_TAG, DELETED_TAG, NEW_TAG = 1, 2, 3, 4, 5, 6, 7
PREVIOUS_LOG_TAG = 9

# A key's changes sort from the last one to the first: the negative tag. None: the key was deleted.
Change = tuple[bytes, int, Buffer | None]


class Damaged(Exception):
    """The file is not what LevelDB writes. The message says where."""


def mapped(path: str) -> memoryview:
    """A file's contents. They stay, whatever becomes of the file's name, while anybody looks at them."""
    with open(path, "rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return memoryview(b"")  # which cannot be mapped
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


# --- logs


def log_records(data: memoryview) -> Iterator[Buffer]:
    """The records in a log. One that breaks off at the end, as a crash leaves it, was never written."""
    parts: list[memoryview] = []
    at = 0
    while at + LOG_HEADER.size <= len(data):
        left = BLOCK - at % BLOCK
        if left < LOG_HEADER.size:
            at += left
            continue
        checksum, length, kind = LOG_HEADER.unpack_from(data, at)
        start, end = at + LOG_HEADER.size, at + LOG_HEADER.size + length
        if kind == 0 and length == 0:  # room that was set aside and not used
            at += left
            continue
        if end > len(data):
            return
        if end > at + left:
            raise Damaged(f"a record at byte {at} is too long")
        if masked_crc(data[start - 1 : end]) != checksum:
            raise Damaged(f"checksum mismatch at byte {at}")
        if kind not in (FULL, FIRST, MIDDLE, LAST) or (kind in (MIDDLE, LAST)) != bool(parts):
            raise Damaged(f"no such part of a record at byte {at}")
        parts.append(data[start:end])
        at = end
        if kind in (FULL, LAST):
            yield parts[0] if len(parts) == 1 else b"".join(parts)
            parts = []


def log_changes(data: memoryview) -> Iterator[Change]:
    """The changes that a log notes, in order."""
    for record in log_records(data):
        if len(record) < BATCH_HEADER.size:
            raise Damaged("log record too small")
        number, count = BATCH_HEADER.unpack_from(record)
        reader = Reader(record)
        reader.position = BATCH_HEADER.size
        try:
            for i in range(count):
                kind = int(reader.array(1, "u1")[0])
                if kind not in (DELETION, VALUE):
                    raise Malformed("no such change")
                key = bytes(_string(reader))
                yield key, -(number + i << 8 | kind), _string(reader) if kind == VALUE else None
        except Malformed as error:
            raise Damaged(f"a batch of changes, number {number}: {error}") from None


def _string(reader: Reader) -> memoryview:
    return reader.array(reader.size(), "u1").data


# --- the manifest


class TableFile(NamedTuple):
    """A table, and the first and the last key in it (without tags)."""

    number: int
    first: bytes
    last: bytes


class Version:
    """What the manifest says: the tables of each level, and the first log that is not yet in them."""

    def __init__(self, data: memoryview) -> None:
        self.levels: dict[int, dict[int, TableFile]] = {}
        self.numbers: dict[int, int] = {}  # by tag
        try:
            for record in log_records(data):
                self._apply(Reader(record))
        except Malformed as error:
            raise Damaged(f"VersionEdit: {error}") from None
        for tag, name in ((NEXT_FILE_TAG, "nextfile"), (LOG_TAG, "lognumber"), (LAST_TAG, "last-sequence-number")):
            if tag not in self.numbers:
                raise Damaged(f"no meta-{name} entry in descriptor")

    def _apply(self, reader: Reader) -> None:
        added: list[tuple[int, TableFile]] = []
        while reader.position < reader.end:
            tag = reader.varint(5)
            if tag == COMPARATOR_TAG:
                name = bytes(_string(reader))
                if name != COMPARATOR:
                    raise Damaged(f"keys are ordered by {name.decode('utf-8', 'replace')}")
            elif tag in (LOG_TAG, PREVIOUS_LOG_TAG, NEXT_FILE_TAG, LAST_TAG):
                self.numbers[tag] = reader.varint()
            elif tag == COMPACT_TAG:
                reader.varint(5)
                _string(reader)
            elif tag == DELETED_TAG:
                level, number = reader.varint(5), reader.varint()
                self.levels.get(level, {}).pop(number, None)
            elif tag == NEW_TAG:
                level, number, _ = reader.varint(5), reader.varint(), reader.varint()
                first, last = (bytes(_string(reader))[: -TAG.size] for _ in range(2))
                added.append((level, TableFile(number, first, last)))
            else:
                raise Malformed(f"unknown tag {tag}")
        for level, table in added:
            self.levels.setdefault(level, {})[table.number] = table

    def is_live(self, log: int) -> bool:
        """Whether a log of this number holds what is not in the tables."""
        return log >= self.numbers[LOG_TAG] or log == self.numbers.get(PREVIOUS_LOG_TAG, 0)


# --- tables


def table_changes(data: memoryview) -> Iterator[Change]:
    """The changes in a table, in order."""
    if len(data) < FOOTER or TAG.unpack_from(data, len(data) - TAG.size)[0] != MAGIC:
        raise Damaged("not an sstable (bad magic number)")
    try:
        footer = Reader(data[-FOOTER:])
        footer.varint(), footer.varint()  # where the filters are, which nobody needs here
        index = _block(data, footer, checked=True)
        for _, handle in _entries(index):
            for key, value in _entries(_block(data, Reader(handle), checked=False)):
                if len(key) < TAG.size:
                    raise Damaged("a key without a tag")
                tag = TAG.unpack_from(key, len(key) - TAG.size)[0]
                yield key[: -TAG.size], -tag, value if tag & 0xFF == VALUE else None
    except (Malformed, IndexError, struct.error) as error:
        raise Damaged(f"bad block: {error}") from None


def _block(data: memoryview, handle: Reader, checked: bool) -> memoryview:
    """A block's entries. LevelDB does not look at the checksums of data either, unless it is asked to."""
    offset, size = handle.varint(), handle.varint()
    if offset + size + TRAILER.size > len(data):
        raise Damaged("truncated block read")
    contents = data[offset : offset + size]
    compression, checksum = TRAILER.unpack_from(data, offset + size)
    if checked and masked_crc(data[offset : offset + size + 1]) != checksum:
        raise Damaged("block checksum mismatch")
    if compression == 1:
        plain = uncompress(contents)
        if plain is None:
            raise Damaged("corrupted compressed block contents")
        contents = plain
    elif compression != 0:
        raise Damaged(f"bad block type {compression}: neither plain nor compressed by Snappy")
    restarts = int.from_bytes(contents[-4:], "little")
    end = len(contents) - 4 * (restarts + 1)
    if end < 0:
        raise Damaged("bad block contents")
    return contents[:end]


def _entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """Keys, which only say where they differ from the one before, and values. IndexError if the block ends too soon."""
    at, end, key = 0, len(block), b""
    sizes = [0, 0, 0]
    while at < end:
        for i in range(3):  # shared with the key before, own part of the key, value
            byte = block[at]
            at += 1
            size = byte & 0x7F
            shift = 7
            while byte > 0x7F:
                byte = block[at]
                at += 1
                size |= (byte & 0x7F) << shift
                shift += 7
            sizes[i] = size
        shared, own, length = sizes
        if shared > len(key) or at + own + length > end:
            raise Damaged("bad entry in block")
        key = key[:shared] + bytes(block[at : at + own])
        at += own
        yield key, block[at : at + length]
        at += length
