"""Damage to bytes and to prototxt: what a disk, an editor or an adversary does to a file."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from random import Random

NUMBERS = (
    0, 1, 2, 3, 7, 10, 127, 128, 255, 256, 1000, 46341, 65535, 65536, 10**6, 10**7, 2**24, 2**30, 2**31 - 1, 2**31,
    2**32 - 1, 2**32, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -1, -2, -(2**31), -(2**31) - 1, -(2**63),
)  # fmt: skip
REALS = (
    "0.0", "-0.0", "1e38", "-1e38", "3.5e38", "1e39", "1e-45", "1e-400", "1e308", "1e400", "inf", "-inf", "nan",
    "-nan", "0.5", "1e6", ".5", "5.", "1.5f", "1e", "0x7fffffff", "017", "09", "1.2.3",
)  # fmt: skip
FLOATS = (float("nan"), float("inf"), float("-inf"), 1e38, -1e38, 3.4028235e38, 1e-45, 0.0, -0.0, 1.0)

Mutation = Callable[[Random, bytes, Sequence[bytes]], bytes]


def varint(value: int) -> bytes:
    """A number as protobuf writes it: of 64 bits, in pieces of 7."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _times(rng: Random) -> int:
    """How many mutations: one half of the time, seldom many."""
    times = 1
    while times < 12 and rng.random() < 0.5:
        times += 1
    return times


# --- bytes


def _span(rng: Random, data: bytes, longest: int = 1 << 12) -> tuple[int, int]:
    begin = rng.randrange(len(data) + 1)
    return begin, min(len(data), begin + int(longest ** rng.random()))


def _flip(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]


def _set(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))]) + data[at + 1 :]


def _truncate(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: rng.randrange(len(data))]


def _cut(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    return data[:begin] + data[end:]


def _repeat(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    return data[:end] + data[begin:end] * rng.choice((1, 1, 2, 30)) + data[end:]


def _move(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    begin, end = _span(rng, data)
    rest = data[:begin] + data[end:]
    at = rng.randrange(len(rest) + 1)
    return rest[:at] + data[begin:end] + rest[at:]


def _splice(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    begin, end = _span(rng, other)
    at, until = _span(rng, data)
    return data[:at] + other[begin:end] + data[rng.choice((at, until)) :]


def _cross(rng: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """The beginning of one file and the end of another."""
    other = rng.choice(others)
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _fixed(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A number of 1, 2, 4 or 8 bytes, where aligned numbers are, or anywhere."""
    size = rng.choice((1, 2, 4, 8))
    at = rng.randrange(len(data))
    at -= rng.choice((0, at % size))
    if size >= 4 and rng.random() < 0.2:
        value = struct.pack("<f" if size == 4 else "<d", rng.choice(FLOATS))
    else:
        value = (rng.choice(NUMBERS) & 2 ** (8 * size) - 1).to_bytes(size, rng.choice(("little", "little", "big")))
    return data[:at] + value + data[at + size :]


def _varint(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """Another number instead of a varint: a length, a tag or a value."""
    at = end = rng.randrange(len(data))
    while end < len(data) - 1 and data[end] & 128 and end < at + 9:
        end += 1
    return data[:at] + varint(rng.choice(NUMBERS)) + data[end + 1 :]


def _fill(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    """A hole, as a crash leaves it."""
    begin, end = _span(rng, data)
    return data[:begin] + rng.choice((b"\0", b"\xff", rng.randbytes(1))) * (end - begin) + data[end:]


def _insert(rng: Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 16, 300))) + data[at:]


_BYTES: tuple[Mutation, ...] = (
    _flip, _flip, _set, _truncate, _cut, _repeat, _move, _splice, _cross, _fixed, _fixed, _varint, _varint, _fill,
    _insert,
)  # fmt: skip
_IN_PLACE: tuple[Mutation, ...] = (_flip, _set, _fixed, _fixed, _fixed, _fill)
LARGEST = 1 << 17


def damage(rng: Random, data: bytes, others: Sequence[bytes], in_place: bool = False) -> bytes:
    """A few mutations of bytes; ``in_place``: those that leave everything else where it is."""
    for _ in range(_times(rng)):
        data = rng.choice(_IN_PLACE if in_place else _BYTES)(rng, data or b"\0", others)[:LARGEST]
    return data


# --- text

_TOKEN = re.compile(rb"""[A-Za-z_]\w*|[-+]?[\d.][\w.+-]*|"[^"\n]*"|'[^'\n]*'|\#[^\n]*|\s+|.""", re.DOTALL)
_NUMBER = re.compile(rb"[-+]?\.?\d")


def tokens(text: bytes) -> list[bytes]:
    """Words, numbers, strings, signs and blanks: together the text."""
    return _TOKEN.findall(text)


def _places(words: list[bytes], wanted: Callable[[bytes], object]) -> list[int]:
    return [i for i, word in enumerate(words) if wanted(word)]


def _some_place(rng: Random, words: list[bytes], wanted: Callable[[bytes], object]) -> int | None:
    places = _places(words, wanted)
    return rng.choice(places) if places else None


def number(rng: Random) -> bytes:
    """A number as text, most of them absurd."""
    kind = rng.random()
    if kind < 0.6:
        return str(rng.choice(NUMBERS)).encode()
    if kind < 0.85:
        return rng.choice(REALS).encode()
    return str(rng.randrange(-3, 12)).encode()


def _new_number(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    at = _some_place(rng, words, _NUMBER.match)
    if at is not None:
        words[at] = number(rng)
    return words


def _new_word(rng: Random, words: list[bytes], other: list[bytes]) -> list[bytes]:
    """Another word of the same sort: an identifier for one, a string for a string, from here or elsewhere."""
    at = _some_place(rng, words, lambda word: word[:1].isalpha() or word[:1] in (b'"', b"'"))
    if at is not None:
        alike = [word for word in rng.choice((words, other)) if word[:1].isalpha() == words[at][:1].isalpha()]
        alike = [word for word in alike if word.strip() and not word[:1].isdigit()]
        words[at] = rng.choice(alike or words)
    return words


def _odd_string(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    at = _some_place(rng, words, lambda word: word[:1] in (b'"', b"'"))
    if at is not None:
        inside = rng.choice(
            (b"", b"\\0", b"\\377\\376", b"\xff\xfe", b"\xc3\xa4", b"/", b"a" * 300, b"\\", b"%s%n", b".")
        )
        words[at] = b'"' + inside + rng.choice((b'"', b'"', b'"', b""))
    return words


def _drop_word(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    at = _some_place(rng, words, bytes.strip)
    return words if at is None else words[:at] + words[at + 1 :]


def _double_word(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    at = _some_place(rng, words, bytes.strip)
    return words if at is None else [*words[:at], words[at], *words[at:]]


def _swap_words(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    places = _places(words, bytes.strip)
    if places:
        a, b = rng.choice(places), rng.choice(places)
        words[a], words[b] = words[b], words[a]
    return words


def _field(rng: Random, words: list[bytes]) -> tuple[int, int] | None:
    """Where a random field is: from its name to its value's or its block's end."""
    begin = _some_place(rng, words, lambda word: word[:1].isalpha())
    if begin is None:
        return None
    depth, end = 0, begin
    while end < len(words):
        word = words[end]
        depth += (word in (b"{", b"<")) - (word in (b"}", b">"))
        end += 1
        if (word in (b"}", b">") and depth <= 0) or (depth == 0 and end > begin + 2 and b"\n" in word):
            break
    return begin, end


def _double_field(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    if (field := _field(rng, words)) is None:
        return words
    begin, end = field
    return words[:end] + [b" ", *words[begin:end]] * rng.choice((1, 1, 1, 2, 40)) + words[end:]


def _drop_field(rng: Random, words: list[bytes], _: list[bytes]) -> list[bytes]:
    if (field := _field(rng, words)) is None:
        return words
    return words[: field[0]] + words[field[1] :]


def _foreign_field(rng: Random, words: list[bytes], other: list[bytes]) -> list[bytes]:
    """A field of another text, before a field or instead of it."""
    here, there = _field(rng, words), _field(rng, other)
    if here is None or there is None:
        return words
    return words[: here[0]] + other[there[0] : there[1]] + [b" "] + words[here[rng.randrange(2)] :]


_TEXT = (
    _new_number, _new_number, _new_number, _new_word, _new_word, _odd_string, _drop_word, _double_word, _swap_words,
    _double_field, _drop_field, _foreign_field, _foreign_field,
)  # fmt: skip


def damage_text(rng: Random, text: bytes, others: Sequence[bytes]) -> bytes:
    """A few mutations of words and fields."""
    words = tokens(text)
    for _ in range(_times(rng)):
        words = rng.choice(_TEXT)(rng, words, tokens(rng.choice(others)))
    return b"".join(words)[:LARGEST]
