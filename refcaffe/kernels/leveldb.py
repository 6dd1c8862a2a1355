"""The two loops over bytes that LevelDB's files ask for: checksums, and blocks that Snappy compressed."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.kernels.compiled import compiled

_CASTAGNOLI = 0x82F63B78
Buffer = bytes | memoryview


@cache
def _table() -> NDArray[np.uint32]:
    """What each byte contributes to a checksum, by its distance (0 ... 7) from the end of eight: (8, 256)."""
    table = np.empty((8, 256), np.uint32)
    table[0] = np.arange(256)
    for _ in range(8):
        table[0] = np.where(table[0] & 1, table[0] >> 1 ^ np.uint32(_CASTAGNOLI), table[0] >> 1)
    for i in range(1, 8):
        table[i] = table[0][table[i - 1] & 0xFF] ^ table[i - 1] >> 8
    return table


def _plain_crc32c(data: Any, table: Any) -> int:
    crc, first = 0xFFFFFFFF, table[0].tolist()  # byte after byte: Python's numbers are faster than NumPy's
    for byte in data.tobytes():
        crc = first[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


@compiled(plain=_plain_crc32c)
def _crc32c(data: Any, table: Any) -> Any:
    crc = np.uint32(0xFFFFFFFF)
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        low = crc ^ (
            np.uint32(data[at])
            | np.uint32(data[at + 1]) << np.uint32(8)
            | np.uint32(data[at + 2]) << np.uint32(16)
            | np.uint32(data[at + 3]) << np.uint32(24)
        )
        crc = (
            table[7, low & 0xFF] ^ table[6, low >> 8 & 0xFF] ^ table[5, low >> 16 & 0xFF] ^ table[4, low >> 24]
            ^ table[3, data[at + 4]] ^ table[2, data[at + 5]] ^ table[1, data[at + 6]] ^ table[0, data[at + 7]]
        )  # fmt: skip
    for at in range(whole, len(data)):
        crc = table[0, (crc ^ data[at]) & 0xFF] ^ crc >> 8
    return crc ^ np.uint32(0xFFFFFFFF)


def masked_crc(data: Buffer) -> int:
    """The CRC-32C of some bytes in the form in which LevelDB stores it."""
    crc = int(_crc32c(np.frombuffer(memoryview(data).toreadonly(), np.uint8), _table()))
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


@compiled  # and no NumPy form: every step depends on the bytes before it
def _uncompress(data: Any, at: int, out: Any) -> bool:
    """Literals and copies from ``at`` on; whether they make up exactly ``out``."""
    done = 0
    while at < len(data):
        tag = int(data[at])
        kind = tag & 3
        at += 1
        if kind == 0:
            length = (tag >> 2) + 1
            more = max(length - 60, 0)  # bytes that hold the length
        else:
            length = (tag >> 2 & 7) + 4 if kind == 1 else (tag >> 2) + 1
            more = 4 if kind == 3 else kind
        if at + more > len(data):
            return False
        number = 0
        for i in range(more):
            number |= int(data[at + i]) << 8 * i
        at += more
        if kind == 0:
            length = number + 1 if more else length
            if length > len(data) - at or length > len(out) - done:
                return False
            for i in range(length):
                out[done + i] = data[at + i]
            at += length
        else:
            offset = number | tag >> 5 << 8 if kind == 1 else number
            if not 0 < offset <= done or length > len(out) - done:
                return False
            for i in range(length):  # in order: source and target may overlap
                out[done + i] = out[done + i - offset]
        done += length
    return done == len(out)


def uncompress(data: Buffer) -> memoryview | None:
    """The contents of a block that Snappy compressed; None if it is damaged."""
    size = shift = start = 0
    while True:
        if start >= min(len(data), 5):
            return None
        byte = data[start]
        size |= (byte & 0x7F) << shift
        start, shift = start + 1, shift + 7
        if byte < 0x80:
            break
    if size > 1 << 32 or size > 64 * len(data):  # no Snappy is that good: do not try to find the memory
        return None
    out = np.empty(size, np.uint8)
    good = _uncompress(np.frombuffer(memoryview(data).toreadonly(), np.uint8), start, out)
    return out.data.toreadonly() if good else None
