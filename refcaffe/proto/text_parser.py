"""Protobuf's text format, read as C++ protobuf 3.21 reads it: what is refused, and in which words.

Python's own ``text_format`` takes another dialect and complains in other words about other places.
Messages of ``caffe.proto`` do not contain themselves, so the schema bounds how deep a text can nest
before it names an unknown field.
"""

from __future__ import annotations

import ctypes
import math
import re
from typing import Any, NamedTuple, NoReturn

from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from refcaffe.proto.binary import bytes_field
from refcaffe.proto.text_tokens import END, FLOAT, IDENTIFIER, INTEGER, STRING, Tokens, string_value

_SIGNED = {Field.TYPE_INT32: 2**31 - 1, Field.TYPE_INT64: 2**63 - 1}
_UNSIGNED = {Field.TYPE_UINT32: 2**32 - 1, Field.TYPE_UINT64: 2**64 - 1}
_FLAGS = {"true": True, "True": True, "t": True, "false": False, "False": False, "f": False}
_NUMBER_WORDS = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}

_OCTAL_OR_HEX = re.compile("0[0-7xX]")

_FLOAT_MAX = 3.4028234663852886e38
_ROUNDED_TO_FLOAT_MAX = 3.4028235677973366e38

_MOST_COMPLAINTS = 20


class Complaint(NamedTuple):
    """What is wrong: the line that C++ protobuf logs, and where (line and column from 1, 0 for none)."""

    text: str
    line: int
    column: int
    field: str


class _Refused(Exception):
    """There is no sense in reading on."""


def single(value: float) -> float:
    """``value`` as a 32-bit float; too large ones become infinity, but half a step too large does not."""
    if _FLOAT_MAX < abs(value) <= _ROUNDED_TO_FLOAT_MAX:
        return math.copysign(_FLOAT_MAX, value)
    return ctypes.c_float(value).value


class TextParser:
    """Reads text into messages; ``complaints`` lists what was wrong with it, in order (the first 20)."""

    def __init__(self, data: bytes) -> None:
        self.complaints: list[Complaint] = []
        self._tokens = Tokens(data, self._complain)
        self._root = ""
        self._path: list[tuple[str, Any]] = []

    def parse(self, message: Any) -> bool:
        """Read the whole text into the empty ``message``: False, and its content undefined, if refused."""
        self._root = message.DESCRIPTOR.full_name
        try:
            self._tokens.advance()
            while self._tokens.kind != END:
                self._field(message)
        except _Refused:
            return False
        if not self.complaints and (missing := message.FindInitializationErrors()):
            text = f"Message missing required fields: {', '.join(missing)}"
            text = f"Error parsing text-format {self._root}: {text}"
            self.complaints.append(Complaint(text, 0, 0, missing[0]))
        return not self.complaints

    # -- words

    def _complain(self, offset: int, text: str) -> None:
        if len(self.complaints) == _MOST_COMPLAINTS:
            return
        line, column = self._tokens.position(offset)
        text = text.encode("latin-1").decode("utf-8", "replace")
        text = f"Error parsing text-format {self._root}: {line}:{column}: {text}"
        self.complaints.append(Complaint(text, line, column, self._place()))

    def _place(self) -> str:
        """Where in the message: ``layer[1].convolution_param.num_output``."""
        place = []
        for name, elements in self._path:
            if elements is None:
                place.append(name)
            else:
                entered = hasattr(elements, "add")  # a message is among the elements while it is being read
                place.append(f"{name}[{max(len(elements) - entered, 0)}]")
        return ".".join(place)

    def _refuse(self, text: str) -> NoReturn:
        self._complain(self._tokens.start, text)
        raise _Refused

    def _taken(self, symbol: str) -> bool:
        if self._tokens.text != symbol:
            return False
        self._tokens.advance()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._taken(symbol):
            self._refuse(f'Expected "{symbol}", found "{self._tokens.text}".')

    def _word(self, kind: str, wanted: str) -> str:
        if self._tokens.kind != kind:
            self._refuse(f"Expected {wanted}, got: {self._tokens.text}")
        text = self._tokens.text
        self._tokens.advance()
        return text

    # -- fields

    def _field(self, message: Message) -> None:
        if self._taken("["):
            self._refuse_extension(message)
        name = self._word(IDENTIFIER, "identifier")
        field: Any = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            self._path.append((name, None))
            self._refuse(f'Message type "{message.DESCRIPTOR.full_name}" has no field named "{name}".')
        elements = None if field.has_presence else getattr(message, name)
        self._path.append((name, elements))
        if elements is None and message.HasField(name):
            self._refuse(f'Non-repeated field "{name}" is specified multiple times.')
        if field.message_type is None:
            self._expect(":")
        else:
            self._taken(":")
        if elements is None or not self._taken("["):
            self._value(message, field, elements)
        elif not self._taken("]"):
            self._value(message, field, elements)
            while not self._taken("]"):
                self._expect(",")
                self._value(message, field, elements)
        self._path.pop()
        if not self._taken(";"):
            self._taken(",")

    def _refuse_extension(self, message: Message) -> NoReturn:
        name = self._word(IDENTIFIER, "identifier")
        while self._taken("."):
            name += "." + self._word(IDENTIFIER, "identifier")
        self._expect("]")
        owner = message.DESCRIPTOR.full_name
        self._refuse(f'Extension "{name}" is not defined or is not an extension of "{owner}".')

    def _value(self, message: Message, field: Field, elements: Any) -> None:
        """One value of ``field``; ``elements`` is the field itself where it is repeated."""
        if field.message_type is not None:
            self._message(getattr(message, field.name) if elements is None else elements.add())
            return
        value = self._scalar(field)
        if isinstance(value, bytes) and field.type == Field.TYPE_STRING:
            try:
                value = value.decode()
            except UnicodeDecodeError:  # old files hold other encodings
                self._merge_raw(message, field, value)
                return
        if elements is None:
            setattr(message, field.name, value)
        else:
            elements.append(value)

    def _merge_raw(self, message: Message, field: Field, value: bytes) -> None:
        try:
            message.MergeFromString(bytes_field(field.number, value))
        except ValueError:  # protobuf without its compiled part holds nothing but UTF-8
            self._refuse(f'String field "{field.name}" contains invalid UTF-8.')

    def _message(self, message: Message) -> None:
        message.SetInParent()
        close = ">" if self._taken("<") else "}"
        if close == "}":
            self._expect("{")
        while self._tokens.text not in (">", "}"):
            self._field(message)
        self._expect(close)

    # -- values

    def _scalar(self, field: Field) -> Any:
        kind = field.type
        if kind == Field.TYPE_FLOAT:
            return single(self._real())
        if kind == Field.TYPE_DOUBLE:
            return self._real()
        if kind in _UNSIGNED:
            return self._unsigned(_UNSIGNED[kind])
        if kind in _SIGNED:
            return self._signed(_SIGNED[kind])
        if kind == Field.TYPE_BOOL:
            return self._flag(field.name)
        if kind == Field.TYPE_ENUM:
            return self._enum(field.name, field.enum_type)
        parts = [self._word(STRING, "string")]
        while self._tokens.kind == STRING:
            parts.append(self._word(STRING, "string"))
        return b"".join(map(string_value, parts))

    def _unsigned(self, largest: int) -> int:
        if self._tokens.kind != INTEGER:
            self._refuse(f"Expected integer, got: {self._tokens.text}")
        value = _integer(self._tokens.text)
        if value is None or value > largest:
            self._refuse(f"Integer out of range ({self._tokens.text})")
        self._tokens.advance()
        return value

    def _signed(self, largest: int) -> int:
        return -self._unsigned(largest + 1) if self._taken("-") else self._unsigned(largest)

    def _real(self) -> float:
        sign = -1.0 if self._taken("-") else 1.0
        kind, text = self._tokens.kind, self._tokens.text
        if kind == IDENTIFIER:
            text = text.lower()
        if kind == INTEGER:
            if _OCTAL_OR_HEX.match(text):
                self._refuse(f"Expect a decimal number, got: {text}")
            value = float(text)
        elif kind == FLOAT:
            value = float(text.rstrip("fFeE+-"))
        elif kind == IDENTIFIER and text in _NUMBER_WORDS:
            value = _NUMBER_WORDS[text]
        else:
            self._refuse(f"Expected double, got: {text}")
        self._tokens.advance()
        return sign * value

    def _flag(self, name: str) -> bool:
        if self._tokens.kind == INTEGER:
            return bool(self._unsigned(1))
        text = self._word(IDENTIFIER, "identifier")
        if text not in _FLAGS:
            self._refuse(f'Invalid value for boolean field "{name}". Value: "{text}".')
        return _FLAGS[text]

    def _enum(self, name: str, enum: Any) -> int:
        if self._tokens.kind == IDENTIFIER:
            text = self._word(IDENTIFIER, "identifier")
            value = enum.values_by_name.get(text)
        elif self._tokens.kind == INTEGER or self._tokens.text == "-":
            number = self._signed(2**31 - 1)
            text, value = str(number), enum.values_by_number.get(number)
        else:
            self._refuse(f"Expected integer or identifier, got: {self._tokens.text}")
        if value is None:
            self._refuse(f'Unknown enumeration value of "{text}" for field "{name}".')
        return int(value.number)


def _integer(text: str) -> int | None:
    """The value of an INTEGER word; None for one that cannot be in range."""
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    try:
        return int(text, 8 if text[0] == "0" else 10)
    except ValueError:  # a digit that is not octal, or more digits than Python converts
        return None
