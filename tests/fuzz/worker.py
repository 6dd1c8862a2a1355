"""One process of the fuzzer: plays inputs one after the other and tells about each in a line of JSON."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import sys
import tempfile
import traceback
from pathlib import Path
from random import Random
from typing import Any

import cv2
import h5py
import lmdb

from refcaffe.checks import CheckError
from refcaffe.device import room
from refcaffe.kernels.leveldb import masked_crc
from tests.fuzz import watch
from tests.fuzz.targets import Input, Maker, Player

_LOADED = (cv2, h5py, lmdb)  # what refcaffe imports late: it is not to be taken for an input's memory
_SOURCE = f"{os.sep}refcaffe{os.sep}"
_PLACES = ("fuzzed", "layer '", "File not found: ", "Couldn't open ")  # the name of a file, or the layer
_REFUSED_MEMORY = re.compile(r"host allocation of size \d+ failed")


class _Silence(logging.Handler):
    """Makes every line that would be logged, and forgets it."""

    def emit(self, record: logging.LogRecord) -> None:
        record.getMessage()


def _where(error: BaseException) -> str:
    """The innermost place of the package that an error, or what caused it, passed."""
    while error.__cause__ is not None:
        error = error.__cause__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCE in frame.filename]
    frames = [frame for frame in frames if not frame.filename.endswith("checks.py")]
    if not frames:
        return "outside"
    return f"{frames[-1].filename.rsplit(_SOURCE)[-1]}:{frames[-1].lineno} {frames[-1].name}"


def judge(error: Exception) -> dict[str, Any]:
    """What an error tells: a refusal as it should be, or something found."""
    kind = type(error).__name__
    if isinstance(error, CheckError):
        if not error.message.strip():
            kind = "CheckError without a message"
        elif not any(place in str(error) for place in _PLACES):
            kind = "CheckError without a place"
        elif _unforeseen(error) and not _REFUSED_MEMORY.search(error.message):
            kind = "memory that was not asked for"
        else:
            return {"outcome": "refused", "message": error.message}
    elif " wants class " in str(error):  # a Python layer's own module
        return {"outcome": "refused", "message": f"{kind} of a Python layer"}
    text = "".join(traceback.format_exception(error, limit=-12))
    return {"outcome": "found", "what": kind, "where": _where(error), "text": text[-4000:]}


def _unforeseen(error: BaseException) -> bool:
    """Whether much memory was taken where nobody had looked how much there is."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError) and not isinstance(cause, room.NoRoom):
            nbytes = getattr(cause, "_total_size", math.inf)  # NumPy's know
            return nbytes > room.UNASKED
        cause = cause.__cause__ or cause.__context__
    return False


class Worker:
    def __init__(self, seed: int, target: str, scratch: Path) -> None:
        self.seed, self.target = seed, target
        self._maker, self._player = Maker(), Player(scratch)
        self._log = logging.getLogger("refcaffe")
        self._log.addHandler(_Silence())
        self._log.propagate = False

    def input(self, number: int) -> Input:
        return self._maker.make(self.target, Random(f"{self.seed}/{self.target}/{number}"))

    def play(self, number: int) -> dict[str, Any]:
        """The outcome of an input, and what it cost."""
        given = self.input(number)
        self._log.setLevel(logging.INFO if number % 8 == 0 else logging.ERROR)
        read = self._player.prepare(given)
        found: dict[str, Any] = {"outcome": "accepted"}
        with watch.watched(len(given.data)) as cost:
            try:
                read()
            except Exception as error:
                found = judge(error)
            del read
        if cost.left and found["outcome"] != "found":
            found = {"outcome": "found", "what": "left behind", "where": given.kind, "text": cost.left}
        file = given.given.path.partition("fixtures/")[2]
        return {
            "number": number, "kind": given.kind, "file": file, "size": len(given.data), "grown": cost.grown,
            "seconds": round(cost.seconds, 4), **found,
        }  # fmt: skip


def main() -> None:
    """``seed target first last``: plays the inputs with these numbers, except the last."""
    seed, target, first, last = sys.argv[1:]
    watch.map_arrays()
    masked_crc(b"loads the compiler")
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as scratch:
        worker = Worker(int(seed), target, Path(scratch))
        for number in range(-24, 0):  # what is loaded and compiled once
            worker.play(number)
        watch.arm()
        for number in range(int(first), int(last)):
            if number % 100 == 0 or number == int(first):
                watch.tidy()
            print(json.dumps(worker.play(number)), flush=True)
        os.chdir(here)


if __name__ == "__main__":
    main()
