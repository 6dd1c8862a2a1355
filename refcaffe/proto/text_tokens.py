"""The words of protobuf's text format, as the C++ library that Caffe is built with splits them.

Text is held as one character per byte, since that library counts columns in bytes. A malformed word
is reported and still handed on: the parser goes on after it and finally refuses the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable

IDENTIFIER, INTEGER, FLOAT, STRING, SYMBOL, END = "identifier", "integer", "float", "string", "symbol", "end"

_NEXT = re.compile(
    r"""
    (?: [ \n\t\r\v\f]+ | \#[^\n\0]* )*
    (?: (?P<identifier> [A-Za-z_][A-Za-z0-9_]* )
      | (?P<integer> 0[xX][0-9a-fA-F]* | 0[0-9]+ | [0-9]+ (?![0-9.eEfF]) )
      | (?P<float> (?: [0-9]+\.?[0-9]* | \.[0-9]+ ) (?: [eE][-+]?[0-9]* )? [fF]? )
      | (?P<string> "(?: [^"\\\n\0]+ | \\[abfnrtv\\?'"]? )*"? | '(?: [^'\\\n\0]+ | \\[abfnrtv\\?'"]? )*'? )
      | (?P<symbol> [ -\xff] )
      | (?P<control> [\0-\x1f]+ )
      | (?P<end> \Z )
    )""",
    re.VERBOSE,
)
_NOT_OCTAL = re.compile("[89]")
_NO_EXPONENT = re.compile("[eE][-+]?(?=[fF]?$)")
_AFTER_NUMBER = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.")

_HEX = "[0-9a-fA-F]"
_BAD_ESCAPE = re.compile(
    rf"""
    \\ (?: [abfnrtv\\?'"0-7] | x{_HEX} | u{_HEX}{{4}} | U00[01]{_HEX}{{5}}
      | (?P<x> x )
      | (?P<u> u{_HEX}{{0,3}} )
      | (?P<U> U (?: 0 (?: 0 (?: [01]{_HEX}{{0,4}} )? )? )? )
      | (?P<other> ) )""",
    re.VERBOSE,
)
_BAD_ESCAPE_TEXT = {
    "x": "Expected hex digits for escape sequence.",
    "u": "Expected four hex digits for \\u escape sequence.",
    "U": "Expected eight hex digits up to 10ffff for \\U escape sequence",
    "other": "Invalid escape sequence in string literal.",
}

_ESCAPE = re.compile(
    rf"""
    \\ (?: (?P<octal> [0-7]{{1,3}} )
      | x (?P<hex> {_HEX}{{1,2}} )
      | (?: u | U0000 ) (?P<head> [dD][89abAB]{_HEX}{{2}} ) \\u (?P<trail> [dD][c-fC-F]{_HEX}{{2}} )
      | (?: u (?P<u> {_HEX}{{4}} ) | U (?P<U> {_HEX}{{8}} ) )
      | (?P<plain> . ) )""",
    re.VERBOSE | re.DOTALL,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Tokens:
    """A cursor over ``data``: ``kind``, ``text`` and ``start`` (byte offset) of the word it stands on.

    It stands before the first word until ``advance`` is called. ``report(offset, text)`` is called for
    every malformed word that is stepped on.
    """

    def __init__(self, data: bytes, report: Callable[[int, str], None]) -> None:
        self.data = data.decode("latin-1")
        self._report = report
        self.kind, self.text, self.start, self._end = "", "", 0, 0

    def position(self, offset: int) -> tuple[int, int]:
        """(line, column) of a byte, both from 1; a tab goes on to the next multiple of 8."""
        begin = self.data.rfind("\n", 0, offset) + 1
        before = self.data[begin:offset].replace("\r", " ")
        return self.data.count("\n", 0, offset) + 1, len(before.expandtabs(8)) + 1

    def advance(self) -> None:
        """Step to the next word; at the end of the text ``kind`` is END and ``text`` empty."""
        previous, previous_end = self.kind, self._end
        while True:
            match = _NEXT.match(self.data, self._end)
            assert match  # every character begins some word
            self.kind = match.lastgroup or END
            self.text = match[self.kind]
            self.start, self._end = match.span(self.kind)
            if self.kind != "control":
                break
            self._report(self.start, "Invalid control characters encountered in text.")
        if self.kind == STRING:
            self._check_string()
        elif self.kind in (INTEGER, FLOAT):
            if self.text[0] == "." and previous == IDENTIFIER and previous_end == self.start:
                self._report(self.start, "Need space between identifier and decimal point.")
            self._check_number()
        elif self.kind == SYMBOL and self.text >= "\x80":
            self._report(self.start, f"Interpreting non ascii codepoint {ord(self.text)}.")

    def _check_number(self) -> None:
        text, follows = self.text, self.data[self._end : self._end + 1]
        if self.kind == INTEGER:
            if text in ("0x", "0X"):
                self._report(self._end, '"0x" must be followed by hex digits.')
            elif text[0] == "0" and text[1:2] not in ("x", "X") and (wrong := _NOT_OCTAL.search(text)):
                at = self.start + wrong.start()
                self._report(at, "Numbers starting with leading zero must be in octal.")
        elif mark := _NO_EXPONENT.search(text):
            self._report(self.start + mark.end(), '"e" must be followed by exponent.')
        if follows not in _AFTER_NUMBER:
            return
        if follows != ".":
            self._report(self._end, "Need space between number and identifier.")
        elif self.kind == FLOAT:
            self._report(self._end, "Already saw decimal point or exponent; can't have another one.")
        else:
            self._report(self._end, "Hex and octal numbers must be integers.")

    def _check_string(self) -> None:
        text = self.text
        if "\\" in text:
            for escape in _BAD_ESCAPE.finditer(text):
                if escape.lastgroup:
                    self._report(self.start + escape.end(), _BAD_ESCAPE_TEXT[escape.lastgroup])
        if len(text) < 2 or text[-1] != text[0] or _odd_backslashes(text[:-1]):
            crosses = self.data[self._end : self._end + 1] == "\n"
            self._report(
                self._end,
                "String literals cannot cross line boundaries." if crosses else "Unexpected end of string.",
            )


def _odd_backslashes(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def _unescaped(escape: re.Match[str]) -> str:
    """The bytes that one escape sequence stands for, one character each."""
    if escape["octal"]:
        return chr(int(escape["octal"], 8) & 0xFF)
    if escape["hex"]:
        return chr(int(escape["hex"], 16))
    if escape["plain"]:
        return _PLAIN.get(escape["plain"], escape["plain"])
    if escape["head"]:
        code = 0x10000 + ((int(escape["head"], 16) & 0x3FF) << 10) + (int(escape["trail"], 16) & 0x3FF)
    else:
        code = int(escape["u"] or escape["U"], 16)
    if code > 0x10FFFF:
        return f"\\U{code:08x}"
    return chr(code).encode("utf-8", "surrogatepass").decode("latin-1")


def string_value(text: str) -> bytes:
    """The bytes that a STRING word, quotes included, stands for."""
    inner = text[1:-1]
    return (_ESCAPE.sub(_unescaped, inner) if "\\" in inner else inner).encode("latin-1")
