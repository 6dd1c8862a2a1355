"""CheckError and the checks that raise it. Where original Caffe ends the process, refcaffe raises."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, NoReturn


class CheckError(RuntimeError):
    """A failed check.

    ``message`` is original Caffe's own text and ``file`` the source file there that complains;
    ``str()`` adds, line by line, where in the work it happened (``within``).
    """

    def __init__(self, message: str, file: str = "") -> None:
        super().__init__(message, file)
        self.message = message
        self.file = file
        self.where: list[str] = []

    def within(self, where: str) -> CheckError:
        """Add one line of context (a layer, a file, a hint); returns self, to be raised again."""
        if where not in self.where:
            self.where.append(where)
        return self

    def __str__(self) -> str:
        return "\n  ".join([self.message.rstrip(), *self.where])


def shown(value: Any) -> str:
    """A value as a C++ stream prints it: 6 significant digits, booleans as 0 and 1, the sign of a NaN."""
    if isinstance(value, Integral):
        return str(int(value))
    if not isinstance(value, Real):
        return str(value)
    if math.isnan(value):
        return "-nan" if math.copysign(1, value) < 0 else "nan"
    return f"{value:.6g}"


class Checker:
    """The checks of one of original Caffe's source files.

    ``expression`` is the condition as that file states it: it is part of the message.
    """

    def __init__(self, file: str) -> None:
        self.file = file

    def __call__(self, condition: Any, expression: str, text: str = "") -> None:
        if not condition:
            raise CheckError(f"Check failed: {expression} {text}", self.file)

    def _compare(self, holds: bool, a: Any, b: Any, expression: str, text: str) -> None:
        if not holds:
            raise CheckError(f"Check failed: {expression} ({shown(a)} vs. {shown(b)}) {text}", self.file)

    def eq(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a == b, a, b, expression, text)

    def ne(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a != b, a, b, expression, text)

    def lt(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a < b, a, b, expression, text)

    def le(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a <= b, a, b, expression, text)

    def gt(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a > b, a, b, expression, text)

    def ge(self, a: Any, b: Any, expression: str, text: str = "") -> None:
        self._compare(a >= b, a, b, expression, text)

    def fatal(self, text: str) -> NoReturn:
        """What upstream logs as FATAL without a condition."""
        raise CheckError(text, self.file)
