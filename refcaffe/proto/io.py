"""Messages in files: read and written as Caffe does, or CheckError with Caffe's message and the place."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any, NoReturn, TypeVar, cast

from google.protobuf.message import DecodeError, EncodeError, Message

from refcaffe.checks import Checker, CheckError
from refcaffe.proto.binary import decode
from refcaffe.proto.text_parser import Complaint, TextParser
from refcaffe.proto.text_printer import to_text
from refcaffe.proto.trained import Numbers, cut

__all__ = [
    "ParseError",
    "parse_text",
    "read_binary",
    "read_text",
    "read_trained",
    "replacing",
    "to_text",
    "write_binary",
    "write_text",
]

M = TypeVar("M", bound=Message)
Path = str | os.PathLike[str]

check = Checker("io.cpp")

_MOST_BYTES = 2**31 - 1


class ParseError(CheckError):
    """A file was there but does not hold the message.

    ``complaints`` is what the protobuf library logs about it, line by line.
    """

    def __init__(self, message: str, file: str, complaints: Sequence[str] = ()) -> None:
        super().__init__(message, file)
        self.complaints = list(complaints)
        for complaint in complaints:
            self.within(complaint)


def read_text(path: Path, message_class: type[M]) -> M:
    """The message in a text file.

    Raises ParseError if it does not hold one, CheckError ("File not found") if it cannot be opened.
    """
    return parse_text(_contents(path, message_class, "Text"), message_class, os.fsdecode(path))


def parse_text(text: str | bytes, message_class: type[M], name: str) -> M:
    """The message in ``text``, which is called ``name`` in the ParseError if it is none."""
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    message = message_class()
    parser = TextParser(data)
    if not parser.parse(message):
        error = _parse_error(message_class, "Text", name, [complaint.text for complaint in parser.complaints])
        raise error.within(_place(parser.complaints[0], data, name))
    return message


def read_binary(path: Path, message_class: type[M]) -> M:
    """The message in a binary file.

    Raises ParseError if it does not hold one, CheckError ("File not found") if it cannot be opened.
    """
    return _parse_binary(_binary(path, message_class), message_class, path)


def read_trained(path: Path, message_class: type[M]) -> tuple[M, list[Numbers]]:
    """The net in a binary file, without those numbers of its blobs that are given apart: see ``trained.cut``."""
    data = _binary(path, message_class)
    rest, numbers = cut(data) or (data, [])
    return _parse_binary(rest, message_class, path), numbers


def _binary(path: Path, message_class: type[Message]) -> bytes:
    if os.path.exists(path) and os.path.getsize(path) > _MOST_BYTES:
        name = os.fsdecode(path)
        raise _parse_error(message_class, "Binary", name, []).within(f"{name} is larger than 2 GB")
    return _contents(path, message_class, "Binary")


def _parse_binary(data: bytes, message_class: type[M], path: Path) -> M:
    name = os.fsdecode(path)
    try:
        message: Any = decode(data, message_class)
    except (DecodeError, ValueError, RecursionError) as cause:
        error = _parse_error(message_class, "Binary", name, [])
        raise error.within(f"{name}, {len(data)} bytes: not a caffe.{message_class.__name__}") from cause
    if missing := message.FindInitializationErrors():
        complaint = (
            f'Can\'t parse message of type "{message.DESCRIPTOR.full_name}" because it is missing '
            f"required fields: {', '.join(missing)}"
        )
        raise _parse_error(message_class, "Binary", name, [complaint]).within(name)
    return cast(M, message)


def write_text(message: Message, path: Path) -> None:
    """Write ``message`` as text; ``path`` holds all of it or, after a CheckError, what it held before."""
    try:
        with replacing(path) as file:
            file.write(to_text(message).encode("ascii"))
    except (OSError, ValueError) as cause:
        _not_written("google::protobuf::TextFormat::Print(proto, output)", path, cause)


def write_binary(message: Message, path: Path) -> None:
    """Write ``message`` serialised; ``path`` holds all of it or, after a CheckError, what it held before."""
    try:
        data = message.SerializePartialToString()
        if len(data) > _MOST_BYTES:
            raise ValueError(f"{len(data)} bytes, more than 2 GB")
        with replacing(path) as file:
            file.write(data)
    except (OSError, ValueError, EncodeError) as cause:
        _not_written("proto.SerializeToOstream(&output)", path, cause)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary file to write into which takes ``path``'s place at the end, whole and on disk.

    If the block raises, ``path`` is left as it was and nothing else remains. A device or a pipe cannot
    be replaced and is written to directly. Raises OSError.
    """
    target = os.path.realpath(path)
    if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
        with open(target, "wb") as file:
            yield file
        return
    temporary = f"{target}.{os.getpid()}-{os.urandom(4).hex()}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _contents(path: Path, message_class: type[Message], form: str) -> bytes:
    name = os.fsdecode(path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except IsADirectoryError as cause:
        raise _parse_error(message_class, form, name, []).within(f"{name} is a folder") from cause
    except (OSError, ValueError) as cause:
        error = CheckError(f"Check failed: fd != -1 (-1 vs. -1) File not found: {name}", check.file)
        reason = cause.strerror if isinstance(cause, OSError) else cause
        raise error.within(f"{name}: {reason}") from cause


def _parse_error(message_class: type[Message], form: str, name: str, complaints: list[str]) -> ParseError:
    """Nets and solvers are read by functions that say so; all other messages by a bare check."""
    kind = message_class.__name__
    if kind in ("NetParameter", "SolverParameter"):
        text = f"Check failed: ReadProtoFrom{form}File(param_file, param) Failed to parse {kind} file: {name}"
        return ParseError(text, "upgrade_proto.cpp", complaints)
    return ParseError(f"Check failed: ReadProtoFrom{form}File(filename, proto) ", "io.hpp", complaints)


def _place(complaint: Complaint, data: bytes, name: str) -> str:
    """File, line, column and field of a complaint, and that line of the text."""
    place = name
    if complaint.line:
        place += f", line {complaint.line}, column {complaint.column}"
    if complaint.field:
        place += f", field {complaint.field}"
    if complaint.line:
        line = data.split(b"\n", complaint.line)[complaint.line - 1]
        place += f": {line.decode('utf-8', 'replace').strip()[:100]}"
    return place


def _not_written(condition: str, path: Path, cause: Exception) -> NoReturn:
    reason = cause.strerror if isinstance(cause, OSError) else cause
    error = CheckError(f"Check failed: {condition} ", check.file)
    raise error.within(f"{os.fsdecode(path)} could not be written: {reason}") from cause
