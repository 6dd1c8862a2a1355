"""Lists of image files: lines of a name and a label."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

_INTEGER = re.compile(r"\s*([+-]?\d+)", re.ASCII)
_LONGEST = 2**63 - 1


class Line(NamedTuple):
    """A line of a list."""

    name: str
    label: int


def atoi(text: str) -> int:
    """The number that a text begins with, as C's function reads it; 0 if it begins with none."""
    found = _INTEGER.match(text)
    number = int(found[1]) if found else 0
    number = max(-_LONGEST - 1, min(number, _LONGEST))
    return (number + 2**31) % 2**32 - 2**31


def read_list(path: str) -> list[Line]:
    """The lines of a list; none if there is no such file. A label stands behind the last blank, the name before it."""
    try:
        with open(path, "rb") as file:
            lines = os.fsdecode(file.read()).split("\n")
    except (OSError, ValueError):  # the latter for a name that no file can have
        return []
    if not lines[-1]:  # what follows the last line's end
        lines.pop()
    found = []
    for line in lines:
        name, _, label = line.rpartition(" ") if " " in line else (line, "", line)
        found.append(Line(name, atoi(label)))
    return found
