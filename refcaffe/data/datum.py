"""Datum, the record of Caffe's databases: from bytes to arrays that look at the same memory, and back."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from refcaffe.checks import Checker
from refcaffe.kernels import datum as kernel
from refcaffe.proto import caffe_pb2
from refcaffe.proto.wire import Malformed, Reader

_check = Checker("data_transformer.cpp")

_INT32_FIELDS = {1: "channels", 2: "height", 3: "width", 5: "label"}
_DATA, _FLOAT_DATA, _ENCODED = 4, 6, 7
_VARINT, _BYTES, _FIXED32 = 0, 2, 5
_FLOAT_TAG = _FLOAT_DATA << 3 | _FIXED32
_TAGGED_FLOAT = np.dtype([("tag", "u1"), ("value", "<f4")])  # how each element is stored


class Datum:
    """One record. ``data`` (uint8) and ``float_data`` (float32) are flat; ``data`` looks at the bytes it
    comes from.

    ``damage`` says why these could not be read to their end; the fields before that are there, as in
    upstream, which does not look whether a record could be parsed. ``origin``: which record it is, for messages.
    """

    __slots__ = ("channels", "damage", "data", "encoded", "float_data", "height", "label", "origin", "width")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Make it an empty record."""
        self.channels = self.height = self.width = self.label = 0
        self.encoded = False
        self.data: NDArray[np.uint8] = _NO_BYTES
        self.float_data: NDArray[np.float32] = _NO_FLOATS
        self.damage = ""
        self.origin: object = None

    def __str__(self) -> str:
        return "a record" if self.origin is None else str(self.origin)

    def image(self) -> Datum:
        """The record itself: what the transformer takes."""
        return self

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width, as the record states them."""
        return self.channels, self.height, self.width

    def pixels(self) -> NDArray[Any]:
        """The values of a raw record, (channels, height, width), uint8 or float32; bytes win over floats.

        CheckError if there are fewer than the shape says (upstream reads beyond them); more are passed over.
        """
        values: NDArray[Any] = self.data if self.data.size else self.float_data
        count = self.channels * self.height * self.width
        if not 0 <= count <= values.size:
            shape = " x ".join(map(str, self.shape))
            field = "data" if self.data.size else "float_data"
            _check.fatal(f"A datum of {shape} has only {values.size} values in its {field}.")
        return values[:count].reshape(self.shape)


_NO_BYTES = np.empty(0, np.uint8)
_NO_FLOATS = np.empty(0, np.float32)


def parse(value: bytes | memoryview, datum: Datum | None = None) -> Datum:
    """Read a serialised Datum, into ``datum`` if that is given, without copying its ``data``.

    Never raises: see ``Datum.damage``.
    """
    if datum is None:
        datum = Datum()
    else:
        datum.clear()
    if not _parse_common(value, datum):
        _parse_any(value, datum)
    return datum


def _parse_common(value: bytes | memoryview, datum: Datum) -> bool:
    """Read a record as Caffe's tools write it; False, and nothing done, if it is another one."""
    message = np.frombuffer(value, np.uint8) if len(value) else _NO_BYTES
    found = np.zeros(kernel.SIZE + 1, np.int64)
    if not kernel.find_fields(message, found):
        return False
    datum.channels, datum.height, datum.width, datum.label, encoded, start, size = found.tolist()
    datum.encoded = encoded != 0
    datum.data = message[start : start + size]
    return True


def _parse_any(value: bytes | memoryview, datum: Datum) -> None:
    floats: list[NDArray[np.float32]] = []
    reader = Reader(value)
    try:
        while reader.position < reader.end:
            _read_field(datum, reader, floats)
    except Malformed as error:
        datum.damage = f"{error} at byte {reader.position} of {reader.end}"
    if floats:
        datum.float_data = floats[0] if len(floats) == 1 else np.concatenate(floats)


def _read_field(datum: Datum, reader: Reader, floats: list[NDArray[np.float32]]) -> None:
    start = reader.position
    number, wire_type = reader.tag()
    if wire_type == _VARINT and number in _INT32_FIELDS:
        setattr(datum, _INT32_FIELDS[number], (reader.varint() + 2**31) % 2**32 - 2**31)
    elif wire_type == _BYTES and number == _DATA:
        datum.data = reader.array(reader.size(), np.uint8)
    elif wire_type == _VARINT and number == _ENCODED:
        datum.encoded = reader.varint() != 0
    elif wire_type == _FIXED32 and number == _FLOAT_DATA:
        floats.append(_float_run(reader, start))
    elif wire_type == _BYTES and number == _FLOAT_DATA:
        floats.append(reader.array(reader.size(), "<f4"))
    else:
        reader.skip(number, wire_type)


def _float_run(reader: Reader, start: int) -> NDArray[np.float32]:
    """One element of float_data and all that follow at once, without a loop over them."""
    if reader.position - start > 1:  # a tag in more bytes than it needs
        return reader.array(4, "<f4")
    reader.position = start
    whole = max((reader.end - start) // _TAGGED_FLOAT.itemsize, 1)
    elements = reader.array(whole * _TAGGED_FLOAT.itemsize, _TAGGED_FLOAT)
    others = elements["tag"] != _FLOAT_TAG
    count = int(others.argmax()) if others.any() else whole
    reader.position = start + count * _TAGGED_FLOAT.itemsize
    return np.ascontiguousarray(elements["value"][:count])


def serialize(pixels: ArrayLike, label: int | None = None) -> bytes:
    """A raw Datum's bytes. ``pixels``, (channels, height, width), go to ``data`` if uint8, else to ``float_data``."""
    array = np.asarray(pixels)
    if array.ndim != 3:
        raise ValueError(f"pixels must be (channels, height, width), not {array.shape}")
    channels, height, width = array.shape
    message = caffe_pb2.Datum(channels=channels, height=height, width=width)
    if array.dtype == np.uint8:
        message.data = array.tobytes()
    else:
        message.float_data.extend(array.astype(np.float32).reshape(-1).tolist())
    if label is not None:
        message.label = int(label)
    return bytes(message.SerializeToString())
