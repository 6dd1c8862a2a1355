"""Strings that are not UTF-8, as files from elsewhere have them: kept byte for byte, like in C++.

Such a field of a message gives bytes, and takes none. As a str it has a lone surrogate for each odd byte
(``surrogateescape``), as the names of files have in Python.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from refcaffe.proto.binary import bytes_field


def as_text(value: str | bytes) -> str:
    """What a string field holds, as str."""
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def as_bytes(value: str | bytes) -> bytes:
    """What a string field holds, as bytes."""
    return value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")


def put(message: Any, field: str, value: str | bytes) -> None:
    """Set a string field, or append to a repeated one."""
    known = message.DESCRIPTOR.fields_by_name[field]
    try:
        if known.has_presence:
            setattr(message, field, value)
        else:
            getattr(message, field).append(value)
    except UnicodeError:
        message.MergeFromString(bytes_field(known.number, as_bytes(value)))


def put_all(message: Any, field: str, values: Iterable[str | bytes]) -> None:
    """Make a repeated string field hold these."""
    kept = list(values)
    message.ClearField(field)
    for value in kept:
        put(message, field, value)
