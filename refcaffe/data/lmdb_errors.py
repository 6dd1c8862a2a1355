"""What liblmdb complains of, in the words of upstream's check of every call."""

from __future__ import annotations

import errno
import os

from refcaffe.checks import CheckError

_FILE = "db_lmdb.hpp"

# Their codes count up from -30799; older py-lmdb tells only the names.
_NAMES = [
    "KEYEXIST", "NOTFOUND", "PAGE_NOTFOUND", "CORRUPTED", "PANIC", "VERSION_MISMATCH", "INVALID", "MAP_FULL",
    "DBS_FULL", "READERS_FULL", "TLS_FULL", "TXN_FULL", "CURSOR_FULL", "PAGE_FULL", "MAP_RESIZED",
    "INCOMPATIBLE", "BAD_RSLOT", "BAD_TXN", "BAD_VALSIZE", "BAD_DBI", "PROBLEM",
]  # fmt: skip
_CODES = {f"MDB_{name}": -30799 + i for i, name in enumerate(_NAMES)}
CORRUPTED = _CODES["MDB_CORRUPTED"], "MDB_CORRUPTED: Located page was wrong type"


def status_error(status: int, text: str, source: str) -> CheckError:
    """The error of a call that returned ``status``, which ``text`` explains."""
    message = f"Check failed: mdb_status == 0 ({status} vs. 0) {text}"
    return CheckError(message, _FILE).within(f"LMDB '{source}'")


def os_status_error(error: OSError, source: str) -> CheckError:
    """The same for a system call's error."""
    number = error.errno or errno.EIO
    return status_error(number, os.strerror(number), source)


def translated(error: Exception, source: str) -> CheckError:
    """The same for an exception of py-lmdb, whose text ends as liblmdb puts it: ``<where>: <text>``."""
    said = str(error)
    for name, code in _CODES.items():
        if name in said:
            return status_error(code, said[said.index(name) :], source)
    for number in errno.errorcode:
        if said.endswith(os.strerror(number)):
            return status_error(number, os.strerror(number), source)
    return CheckError(said, _FILE).within(f"LMDB '{source}'")
