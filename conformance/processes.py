"""Caffe's programs as real processes, and what they say (FORMAT-cli.md, FORMAT-upgrade.md)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_SECONDS = 600  # a process that takes longer is killed
_SHELLS_SIGNAL = 128  # an exit status of 128 + n is how a shell reports signal n, and how an engine may imitate it

_LOG = re.compile(r"([IWEF])\d{4,8} [\d:.]+ +\d+ ([^:\]]+):\d+\] (.*)")
_PARSER = re.compile(r"\[libprotobuf (\w+) [^\]]*\] (.*)")
_STACK = ("    @ ", "*** ", "PC: @ ")
_BETWEEN_TRACEBACKS = ("During handling of", "The above exception was")


@dataclass(frozen=True)
class Programs:
    """How an engine starts Caffe's programs.

    ``name`` and ``version``: what stands where the original calls itself ``caffe`` in its usage and version.
    ``command``: the words that start ``caffe`` or one of its tools with arguments.
    """

    name: str
    version: str
    command: Callable[[str, Sequence[str]], list[str]]
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(
        self, program: str, arguments: Sequence[str], folder: Path, signals: Sequence[dict[str, Any]] = ()
    ) -> dict[str, Any]:
        """Run to the end in a folder: what ``recorded.runs`` holds of a run, and ``python``: exceptions it printed.

        ``signals``: what to send, one after the other, as soon as a line holds ``after``.
        """
        with tempfile.TemporaryFile() as stdout:
            process = subprocess.Popen(
                self.command(program, arguments), cwd=folder, env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE,
            )  # fmt: skip
            limit = threading.Timer(_SECONDS, process.kill)
            limit.start()
            try:
                lines = _heard(process, list(signals))
                status = process.wait()
            finally:
                limit.cancel()
                process.kill()
                process.wait()
            stdout.seek(0)
            text = stdout.read().decode("utf-8", "replace")
        number = -status if status < 0 else status - _SHELLS_SIGNAL if status > _SHELLS_SIGNAL else None
        return {"exit": None if number else status, "signal": number, "stdout": text, **read_stderr(lines)}


def _heard(process: subprocess.Popen[bytes], signals: list[dict[str, Any]]) -> list[str]:
    """The lines of standard error; signals are sent while they come in."""
    assert process.stderr is not None
    lines = []
    with process.stderr as stderr:
        for raw in stderr:
            lines.append(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if signals and signals[0]["after"] in lines[-1]:
                due = signals.pop(0)
                time.sleep(due["wait_s"])
                process.send_signal(signal.Signals[due["signal"]])
    return lines


def read_stderr(lines: Sequence[str]) -> dict[str, Any]:
    """What lines of standard error are: ``log``, ``parser``, ``python`` (exceptions), ``other_stderr``.

    Stack traces and the frames of tracebacks, which show an engine's own files, are left out.
    """
    log: list[list[str]] = []
    parser: list[list[str]] = []
    python: list[str] = []
    other: list[str] = []
    in_traceback = False
    for line in lines:
        if found := _LOG.fullmatch(line):
            log.append([found[1], found[2], found[3]])
        elif found := _PARSER.fullmatch(line):
            parser.append([found[1], found[2]])
        elif line.startswith("Traceback (most recent call last)"):
            in_traceback = True
        elif in_traceback:
            if line and not line.startswith((" ", *_BETWEEN_TRACEBACKS)):
                python.append(line)
                in_traceback = False
        elif line.startswith(_STACK) or line.startswith(_BETWEEN_TRACEBACKS):
            continue
        elif log:
            log[-1][2] += f"\n{line}"
        elif line:
            other.append(line)
    return {"log": log, "parser": parser, "python": python, "other_stderr": other}
