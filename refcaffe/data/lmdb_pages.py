"""Whether an LMDB file holds all pages its records need, found out by reading it, not by mapping it."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

_PAGE = struct.Struct("=QHHHH")  # number, pad, flags, lower, upper
_NODE = struct.Struct("=HHHH")  # low and middle 16 bits of a size or page, flags or high bits, key size
_U64 = struct.Struct("=Q")
_BRANCH, _LEAF, _ELSEWHERE = 1, 2, 1  # page flags; node flag: the value has pages of its own
_PAGE_SIZE_AT, _ROOT_AT, _TRANSACTION_AT = 40, 128, 144  # in a meta page of a 64-bit liblmdb


def all_pages_there(path: str) -> bool:
    """Whether every page from the root down to the last value lies inside the file; nonsense does not."""
    try:
        with open(path, "rb") as file:
            return all(_walk(file, os.path.getsize(path)))
    except (OSError, struct.error):
        return False


def _walk(file: BinaryIO, file_size: int) -> Iterator[bool]:
    """For each page, and each value with pages of its own, whether it is there."""
    first = file.read(_TRANSACTION_AT + 8)
    (page_size,) = struct.unpack_from("=I", first, _PAGE_SIZE_AT)
    file.seek(page_size)
    newest = max((first, file.read(len(first))), key=lambda meta: _U64.unpack_from(meta, _TRANSACTION_AT))
    (root,) = _U64.unpack_from(newest, _ROOT_AT)
    left = [] if root == 2**64 - 1 else [root]  # no root: no records
    seen = set()
    while left:
        number = left.pop()
        yield (number + 1) * page_size <= file_size and number not in seen
        seen.add(number)
        file.seek(number * page_size)
        page = file.read(page_size)
        flags, lower = _PAGE.unpack_from(page)[2:4]
        yield flags in (_BRANCH, _LEAF)
        for (at,) in struct.iter_unpack("=H", page[_PAGE.size : lower]):
            low, middle, high, key_size = _NODE.unpack_from(page, at)
            if flags == _BRANCH:
                left.append(low | middle << 16 | high << 32)
            elif high & _ELSEWHERE:
                (start,) = _U64.unpack_from(page, at + _NODE.size + key_size)
                yield start * page_size + _PAGE.size + (low | middle << 16) <= file_size
