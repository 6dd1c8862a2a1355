"""``--log_json FILE``: what happens in a training run, one JSON object a line (docs/training.md lists them)."""

from __future__ import annotations

import json
import math
import os
import time
from numbers import Integral, Real
from types import TracebackType
from typing import Any

from refcaffe.checks import CheckError


def _plain(value: Any) -> Any:
    """A value for JSON: floats in their shortest form, null for what is no finite number."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, Real) and not isinstance(value, Integral):
        return float(str(value)) if math.isfinite(value) else None
    return int(value) if isinstance(value, Integral) else value


class JsonLog:
    """Writes events to a file as they come. ``append``: go on with what a run that was interrupted wrote.

    Raises CheckError if the file cannot be written.
    """

    def __init__(self, path: str, append: bool = False) -> None:
        self._started = time.monotonic()
        try:
            self._file = open(path, "a+b" if append else "w+b")  # noqa: SIM115 - __exit__ closes it
            if self._file.seek(0, os.SEEK_END):
                self._file.seek(-1, os.SEEK_END)
                if self._file.read() != b"\n":  # cut off in the middle of a line
                    self._file.write(b"\n")
        except OSError as error:
            raise CheckError(f"--log_json: {path} cannot be written: {error.strerror}") from error

    def __call__(self, event: dict[str, Any]) -> None:
        """Write one event, with the seconds since the log was opened as ``time``; it is on its way at once."""
        line = json.dumps({**_plain(event), "time": round(time.monotonic() - self._started, 3)}, allow_nan=False)
        self._file.write(line.encode() + b"\n")
        self._file.flush()

    def __enter__(self) -> JsonLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
