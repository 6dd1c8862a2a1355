"""Protobuf's text format, printed as C++ protobuf 3.21 prints it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from google.protobuf.unknown_fields import UnknownFieldSet

from refcaffe.proto.binary import has_zero_tag
from refcaffe.proto.text_parser import single

_SMALLEST_NORMAL_FLOAT = 2.0**-126
_UNKNOWN_DEPTH = 10

_ESCAPES = {code: f"\\{code:03o}" for code in (*range(32), *range(127, 256))}
_ESCAPES.update(str.maketrans({"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "'": "\\'", "\\": "\\\\"}))


def float_text(value: float) -> str:
    """A 32-bit float in 6 significant digits if they suffice to read it back, else in 9."""
    text = f"{value:.6g}"
    # the library's test of 6 digits fails on denormals, whose reading back sets an error flag
    denormal = 0 < abs(value) < _SMALLEST_NORMAL_FLOAT
    return text if single(float(text)) == value and not denormal else f"{value:.9g}"


def double_text(value: float) -> str:
    """A 64-bit float in 15 significant digits if they suffice to read it back, else in 17."""
    text = f"{value:.15g}"
    return text if float(text) == value else f"{value:.17g}"


def quoted(value: str | bytes) -> str:
    """A string in double quotes; what is not printable ASCII as octal escapes of its UTF-8 bytes."""
    data = value.encode() if isinstance(value, str) else value
    return f'"{data.decode("latin-1").translate(_ESCAPES)}"'


_PRINT: dict[int, Callable[[Any], str]] = {
    Field.TYPE_FLOAT: float_text,
    Field.TYPE_DOUBLE: double_text,
    Field.TYPE_BOOL: lambda value: "true" if value else "false",
    Field.TYPE_STRING: quoted,
    Field.TYPE_BYTES: quoted,
}


def to_text(message: Message) -> str:
    """``message`` as text: a field a line in order of their numbers, messages indented by two blanks."""
    return "".join(_lines(message, ""))


def _lines(message: Message, indent: str) -> Iterator[str]:
    for field, value in message.ListFields():
        values = (value,) if field.has_presence else value
        if field.message_type is not None:
            for inner in values:
                yield f"{indent}{field.name} {{\n"
                yield from _lines(inner, indent + "  ")
                yield f"{indent}}}\n"
        else:
            if field.enum_type is not None:
                names = field.enum_type.values_by_number
                texts = [names[number].name for number in values]
            else:
                texts = list(map(_PRINT.get(field.type, str), values))
            for text in texts:
                yield f"{indent}{field.name}: {text}\n"
    yield from _unknown_lines(UnknownFieldSet(message), indent, _UNKNOWN_DEPTH)


def _unknown_lines(fields: Any, indent: str, depth: int) -> Iterator[str]:
    """Fields that the schema does not have, by number; bytes that read as a message are shown as one."""
    for field in fields:
        value, inner = field.data, None
        if field.wire_type == 0:
            text = str(value)
        elif field.wire_type == 1:
            text = f"0x{value:016x}"
        elif field.wire_type == 5:
            text = f"0x{value:08x}"
        elif field.wire_type == 3:
            inner = value
        else:
            text = quoted(value)
            if value and depth > 0:
                inner = _read_as_message(value)
        if inner is None:
            yield f"{indent}{field.field_number}: {text}\n"
        else:
            yield f"{indent}{field.field_number} {{\n"
            yield from _unknown_lines(inner, indent + "  ", depth - 1)
            yield f"{indent}}}\n"


def _read_as_message(data: bytes) -> UnknownFieldSet | None:
    try:
        fields = UnknownFieldSet(Empty.FromString(data))
    except DecodeError:
        return None
    return None if has_zero_tag(fields) else fields
