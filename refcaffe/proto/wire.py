"""Reading protocol buffers' wire format straight from memory, without a copy.

A generated class would copy every byte two or three times; and it tells nothing of a message that breaks off, of which
upstream uses what came before.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_MAX_SIZE = 2**31 - 1 - 16
_MAX_DEPTH = 100
_START_GROUP, _END_GROUP = 3, 4
_FIXED = {1: 8, 5: 4}


class Malformed(Exception):
    """The bytes are no message from ``position`` on. The message says why."""


class Reader:
    """A position in a message."""

    __slots__ = ("_bytes", "end", "position")

    def __init__(self, message: bytes | memoryview) -> None:
        self._bytes = message
        self.position = 0
        self.end = len(message)

    def varint(self, longest: int = 10) -> int:
        """An unsigned number of up to 64 bits."""
        value = shift = 0
        for position in range(self.position, min(self.position + longest, self.end)):
            byte = self._bytes[position]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.position = position + 1
                return value & 0xFFFFFFFFFFFFFFFF
            shift += 7
        raise Malformed("cut off" if self.end - self.position < longest else "a number too long")

    def tag(self) -> tuple[int, int]:
        """The number of the next field and its wire type."""
        start = self.position
        tag = self.varint(longest=5)
        if not 0 < tag >> 3 < 2**29:
            self.position = start
            raise Malformed("no field")
        return tag >> 3, tag & 7

    def size(self) -> int:
        """The length of what follows."""
        start = self.position
        size = self.varint(longest=5)
        if size > _MAX_SIZE:
            self.position = start
            raise Malformed("a length too large")
        return size

    def array(self, nbytes: int, dtype: DTypeLike) -> NDArray[Any]:
        """The next bytes as an array that looks at them."""
        kind = np.dtype(dtype)
        if nbytes > self.end - self.position:
            raise Malformed("cut off")
        if nbytes % kind.itemsize:
            raise Malformed(f"not a whole number of {kind.itemsize}-byte values")
        if not nbytes:  # NumPy refuses to look at nothing
            return np.empty(0, kind)
        values = np.frombuffer(self._bytes, kind, nbytes // kind.itemsize, self.position)
        self.position += nbytes
        return values

    def skip(self, number: int, wire_type: int, depth: int = 0) -> None:
        """Pass over the value of a field that nobody asks for."""
        if wire_type == 0:
            self.varint()
        elif wire_type in _FIXED:
            self.array(_FIXED[wire_type], np.uint8)
        elif wire_type == 2:
            self.array(self.size(), np.uint8)
        elif wire_type == _START_GROUP and depth < _MAX_DEPTH:
            while (inner := self.tag()) != (number, _END_GROUP):
                self.skip(*inner, depth + 1)
        else:
            raise Malformed("no field")
