"""Writing LMDB databases through py-lmdb."""

from __future__ import annotations

import os
import shutil
from types import TracebackType
from typing import Any

import lmdb

from refcaffe.checks import Checker
from refcaffe.data.lmdb_errors import os_status_error, translated

_check = Checker("db_lmdb.cpp")

_FIRST_MAP = 10 << 20
_PENDING_RECORDS, _PENDING_BYTES = 1000, 32 << 20  # how much waits for a transaction


class LmdbWriter:
    """See ``db.Writer``. Grows under a temporary name beside its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._partial = f"{source.rstrip(os.sep)}.partial-{os.getpid()}"
        self._pending: list[tuple[bytes, bytes]] = []
        self._pending_bytes = 0
        try:
            self._make_folder()
            # Not safe until the last sync: nobody knows the folder before that.
            self._env: Any = lmdb.open(self._partial, map_size=_FIRST_MAP, sync=False)
        except BaseException as error:  # an interrupt, too, leaves nothing behind
            shutil.rmtree(self._partial, ignore_errors=True)
            if isinstance(error, lmdb.Error):
                raise translated(error, source) from None
            raise

    def _make_folder(self) -> None:
        made = not os.path.lexists(self._source)
        if made:
            shutil.rmtree(self._partial, ignore_errors=True)
            try:
                os.mkdir(self._partial, 0o744)
            except OSError:
                made = False
        text = f"mkdir {self._source} failed"
        _check.eq(0 if made else -1, 0, "mkdir(source.c_str(), 0744) == 0", text)

    def put(self, key: bytes, value: bytes) -> None:
        self._pending.append((key, value))
        self._pending_bytes += len(value)
        if len(self._pending) >= _PENDING_RECORDS or self._pending_bytes >= _PENDING_BYTES:
            self.commit()

    def commit(self) -> None:
        while self._pending:
            try:
                with self._env.begin(write=True) as transaction:
                    for key, value in self._pending:
                        transaction.put(key, value)
                self._pending.clear()
                self._pending_bytes = 0
            except lmdb.MapFullError:  # the transaction is gone: once more, with more room
                self._env.set_mapsize(2 * self._env.info()["map_size"])
            except lmdb.Error as error:
                raise translated(error, self._source) from None

    def __enter__(self) -> LmdbWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            self._env.close()
            shutil.rmtree(self._partial, ignore_errors=True)

    def _finish(self) -> None:
        self.commit()
        try:
            self._env.sync(True)
            self._env.close()
            os.rename(self._partial, self._source)
        except lmdb.Error as failed:
            raise translated(failed, self._source) from None
        except OSError as failed:
            raise os_status_error(failed, self._source) from None
