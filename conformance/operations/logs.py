"""Comparing log lines: words exactly, numbers that were computed within a bound and the rounding of printing."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from conformance.outcome import Findings

_SPEED = re.compile(r"\(\S+ iter/s, \S+s/(\d+) iters\)")
_NUMBER = re.compile(r"(?<![\w.])([-+]?\d+\.?\d*(?:e[-+]?\d+)?)(?![\w])")
_WHOLE = re.compile(r"[-+]?\d+")
_DIGITS = 6  # significant digits of a printed number


def canonical(text: str) -> str:
    """Without measured times and blanks at the end."""
    return _SPEED.sub(r"(<R> iter/s, <T>s/\1 iters)", text).rstrip()


def _unit(x: float) -> float:
    """One unit in the last printed digit."""
    return 10.0 ** (math.floor(math.log10(x)) - _DIGITS + 1) if x else 0.0


def judge_log(recorded: list[Any], got: list[Any], relative: float, findings: Findings) -> None:
    """Compare lines ``[operation, level and file, text]``; ``relative``: by how much computed numbers may be off."""
    for i, (expected, line) in enumerate(zip(recorded, got)):
        where = f"log[{i}]"
        texts = canonical(expected[2]), canonical(line[2])
        if expected[:2] != line[:2] or _NUMBER.sub("#", texts[0]) != _NUMBER.sub("#", texts[1]):
            findings.value(where, [*expected[:2], texts[0]], [*line[:2], texts[1]])
            return  # what follows is likely to be shifted
        if texts[0] != texts[1]:
            _judge_numbers(f"{where} {texts[0].strip()[:60]!r}", texts[0], texts[1], relative, findings)
    findings.value("log: number of lines", len(recorded), len(got))


def _judge_numbers(where: str, recorded: str, got: str, relative: float, findings: Findings) -> None:
    numbers = [_NUMBER.findall(text) for text in (recorded, got)]
    for a, b in zip(*numbers):
        if _WHOLE.fullmatch(a) and _WHOLE.fullmatch(b):
            findings.value(where, a, b)
        else:
            x, y = np.float64(a), np.float64(b)
            largest = max(abs(x), abs(y))
            # Two numbers that are nearly equal may be rounded to neighbours when they are printed.
            bound = relative * largest + 1.001 * _unit(largest)
            findings.array(where, np.asarray(x), np.asarray(y), "printed", bound)
