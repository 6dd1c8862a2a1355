"""The records in an LMDB file, every step checked: on a damaged file liblmdb's own cursor ends the process."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

# As liblmdb lays its structures out, in the machine's own byte order and word size.
_WORD = "Q" if struct.calcsize("P") == 8 else "I"
_DATABASE = f"IHH5{_WORD}"  # pad or page size, flags, depth; pages of three kinds, entries, root
_HEADER = struct.Struct(f"={_WORD}4H")  # of a page: number, pad, flags, where free space begins and ends
_META = struct.Struct(f"={_WORD}4H2I2{_WORD}{_DATABASE}{_DATABASE}2{_WORD}")
_NODE = struct.Struct("=4H")  # low and high half of the value's size, flags, size of the key
_NUMBER = struct.Struct(f"={_WORD}")
_MAGIC = 0xBEEFC0DE
_PAGE_SIZES = [1 << n for n in range(9, 17)]
_NO_PAGE = 256 ** struct.calcsize(_WORD) - 1

_BRANCH, _LEAF, _OVERFLOW, _KINDS = 1, 2, 4, 0x6F  # flags of pages
_ELSEWHERE, _DUPLICATES = 1, 4  # flags of nodes: the value has pages of its own; it is a list of values
_DEPTH = 32  # more than liblmdb makes


class Damaged(Exception):
    """The file is not what liblmdb writes. The message says where."""


class Meta(NamedTuple):
    """The state after a transaction."""

    root: int
    last_page: int
    transaction: int


def read_page_size(file: BinaryIO) -> int:
    """The size of pages in a data file; 0 if it is no LMDB. liblmdb believes what it reads there, whatever it is."""
    first = file.read(_META.size)
    if len(first) < _META.size or _META.unpack(first)[5] != _MAGIC:
        return 0
    page_size = int(_META.unpack(first)[9])
    if page_size not in _PAGE_SIZES:
        raise Damaged(f"a page size of {page_size}")
    file.seek(page_size)
    second = file.read(page_size)
    if len(second) < page_size or _META.unpack_from(second)[5] != _MAGIC or _META.unpack_from(second)[9] != page_size:
        raise Damaged("the first two pages do not agree")
    return page_size


def read_meta(pages: memoryview, page_size: int, transaction: int) -> Meta:
    """The meta page on which a transaction is written; an older or a newer one may be there."""
    start = transaction % 2 * page_size
    if start + _META.size > len(pages):
        raise Damaged("no meta pages")
    fields = _META.unpack_from(pages, start)
    return Meta(*fields[-3:])


class Tree:
    """The records of one state of a database. ``pages`` is the whole file."""

    def __init__(self, pages: memoryview, page_size: int, root: int) -> None:
        self._pages = pages
        self._page_size = page_size
        self._root = root

    def records(self) -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values in order; each value looks at the file. Raises Damaged where that is impossible."""
        left = [iter([] if self._root == _NO_PAGE else [self._root])]
        while left:
            number = next(left[-1], None)
            if number is None:
                left.pop()
                continue
            page, kind = self._page(number, _BRANCH, _LEAF)
            if kind == _LEAF:
                yield from self._leaf(page, number)
            elif len(left) < _DEPTH:
                left.append(self._children(page, number))
            else:
                raise Damaged(f"page {number} is too deep")

    def _page(self, number: int, *kinds: int) -> tuple[memoryview, int]:
        start = number * self._page_size
        if start + self._page_size > len(self._pages):
            raise Damaged(f"page {number} lies behind the end of the file")
        page = self._pages[start : start + self._page_size]
        own_number, _, flags, _, _ = _HEADER.unpack_from(page)
        if own_number != number or flags & _KINDS not in kinds:
            raise Damaged(f"page {number} is no such page")
        return page, flags & _KINDS

    def _nodes(self, page: memoryview, number: int) -> Iterator[tuple[int, int, int, int, int]]:
        """The place behind each node's head, and what is in that."""
        end = _HEADER.unpack_from(page)[3]
        if not _HEADER.size <= end <= len(page) or end % 2:
            raise Damaged(f"page {number} has no list of records")
        for (at,) in struct.iter_unpack("=H", page[_HEADER.size : end]):
            if at + _NODE.size > len(page):
                raise Damaged(f"page {number} has a record outside")
            yield at + _NODE.size, *_NODE.unpack_from(page, at)

    def _children(self, page: memoryview, number: int) -> Iterator[int]:
        for _, low, middle, high, _ in self._nodes(page, number):
            yield low | middle << 16 | (high << 32 if _WORD == "Q" else 0)

    def _leaf(self, page: memoryview, number: int) -> Iterator[tuple[bytes, memoryview]]:
        for at, low, high, flags, key_size in self._nodes(page, number):
            start, size = at + key_size, low | high << 16
            if start + (_NUMBER.size if flags & _ELSEWHERE else size) > len(page):
                raise Damaged(f"page {number} has a record that is too long")
            if flags & _DUPLICATES:
                raise Damaged(f"page {number} has several values for a key")
            key = bytes(page[at:start])
            if flags & _ELSEWHERE:
                yield key, self._elsewhere(_NUMBER.unpack_from(page, start)[0], size)
            else:
                yield key, page[start : start + size]

    def _elsewhere(self, number: int, size: int) -> memoryview:
        self._page(number, _OVERFLOW)
        start = number * self._page_size + _HEADER.size
        if start + size > len(self._pages):
            raise Damaged(f"the value on page {number} goes beyond the end of the file")
        return self._pages[start : start + size]


EMPTY = Tree(memoryview(b""), 1, _NO_PAGE)
