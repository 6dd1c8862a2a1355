"""Records one after the other, round and round: what a Data layer reads."""

from __future__ import annotations

import logging
from typing import NamedTuple

from refcaffe import context
from refcaffe.checks import CheckError
from refcaffe.data.datum import Datum, parse
from refcaffe.data.db import Backend, open_cursor

_log = logging.getLogger("refcaffe.data_layer.cpp")


class Origin(NamedTuple):
    """Which record something is. ``number``: its place in its database, from 0."""

    source: str
    number: int
    key: bytes

    def __str__(self) -> str:
        key = self.key.decode("utf-8", "backslashreplace")
        return f"record {self.number} of '{self.source}', key '{key}'"


class CursorRecords:
    """Those of a database whose running number, through all rounds, is ``rank`` modulo ``count``.

    What their ``data`` looks at lives until ``close``.
    """

    def __init__(self, source: str, backend: Backend, count: int = 1, rank: int = 0) -> None:
        self._source = source
        self._cursor = open_cursor(source, backend)
        self.count, self.rank = count, rank
        self._running = 0
        self._number = 0
        self._used = False  # whether the record at the cursor was taken: the next call moves on first

    def peek(self, into: Datum | None = None) -> Datum:
        """The next record, which stays the next; parsed into a Datum that is given."""
        self._find()
        return self._read(into)

    def take(self, into: Datum | None = None) -> Datum:
        """The next of those that this solver keeps."""
        self._find()
        while self._running % self.count != self.rank:
            self._next()
        self._used = True
        return self._read(into)

    def give_back(self, datum: Datum) -> None:
        """Nobody waits for it."""

    def _read(self, into: Datum | None) -> Datum:
        datum = parse(self._cursor.value(), into)
        datum.origin = Origin(self._source, self._number, self._cursor.key())
        return datum

    def _find(self) -> None:
        if self._used:
            self._next()
        if not self._cursor.valid:
            raise CheckError(f"There are no records in '{self._source}'.", "data_layer.cpp")

    def _next(self) -> None:
        try:
            self._cursor.next()
            self._number += 1
            if not self._cursor.valid:
                if context.current().root_solver and not context.current_build().reader_era:
                    _log.info("Restarting data prefetching from start.")
                self._cursor.seek_to_first()
                self._number = 0
        except CheckError as error:
            raise error.within(f"behind record {self._number}") from None
        self._running += 1
        self._used = False

    def close(self) -> None:
        self._cursor.close()
