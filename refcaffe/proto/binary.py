"""Serialised messages, taken and refused as C++ protobuf 3.21 takes and refuses them.

Python's library reads on over a tag of zero, as a file has it that was filled up with zeros or has a
hole. The C++ library takes it for the end of the message, which at the top is fine and inside is not.
"""

from __future__ import annotations

from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

M = TypeVar("M", bound=Message)

_LONGEST_TAG, _LONGEST_VARINT = 5, 10
_VARINT, _FIXED64, _BYTES, _GROUP, _END_GROUP, _FIXED32 = range(6)


def decode(data: bytes, message_class: type[M]) -> M:
    """The message that ``data`` begins with. Raises DecodeError (or ValueError) if there is none."""
    try:
        message = message_class.FromString(data)
        whole = not has_zero_tag(UnknownFieldSet(message))
    except (DecodeError, ValueError):
        whole = False
    if not whole:
        message = message_class.FromString(data[: _end_of_message(data)])
    if _has_zero_tag_inside(message):
        raise DecodeError("a tag of zero inside the message")
    return message


def bytes_field(number: int, value: bytes) -> bytes:
    """A field serialised: the way into a message for a string that is not UTF-8."""
    return _varint_bytes(number << 3 | _BYTES) + _varint_bytes(len(value)) + value


def has_zero_tag(fields: Any) -> bool:
    """Whether an UnknownFieldSet has a field of number zero: a tag that was read over."""
    return any(field.field_number == 0 or (field.wire_type == _GROUP and has_zero_tag(field.data)) for field in fields)


def _has_zero_tag_inside(message: Message) -> bool:
    if has_zero_tag(UnknownFieldSet(message)):
        return True
    return any(
        _has_zero_tag_inside(inner)
        for field, value in message.ListFields()
        if field.message_type is not None
        for inner in ((value,) if field.has_presence else value)
    )


def _end_of_message(data: bytes) -> int:
    """Where the fields of ``data`` end: at a tag of zero, at the end of no open group, or with the data."""
    at, depth = 0, 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at, _LONGEST_TAG)
        wire = tag & 7
        if at > len(data):
            break
        if depth == 0 and (tag == 0 or wire == _END_GROUP):
            return begin
        if wire == _VARINT:
            _, at = _varint(data, at, _LONGEST_VARINT)
        elif wire == _BYTES:
            length, at = _varint(data, at, _LONGEST_TAG)
            at += length
        else:
            at += {_FIXED64: 8, _FIXED32: 4}.get(wire, 0)
            depth += {_GROUP: 1, _END_GROUP: -1}.get(wire, 0)
    return len(data)


def _varint(data: bytes, at: int, longest: int) -> tuple[int, int]:
    """(value, where it ends) of the integer at ``at``; if cut off or too long, it ends after the data."""
    value = 0
    for i, byte in enumerate(data[at : at + longest]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    return 0, len(data) + 1


def _varint_bytes(value: int) -> bytes:
    data = bytearray()
    while value > 127:
        data.append(value & 127 | 128)
        value >>= 7
    return bytes(data) + bytes([value])
