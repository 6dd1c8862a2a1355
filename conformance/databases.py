"""The databases that a case gives (FORMAT-data.md), and a writer of another process."""

from __future__ import annotations

import base64
import json
import subprocess
import sys

from conformance.cases import Case, CaseError
from conformance.engines.pipeline import Pipeline

_WRITER = """
import base64, json, sys
import lmdb
env = lmdb.open(sys.argv[1], map_size=1 << 30)
transaction = env.begin(write=True)
for key, value in json.loads(sys.stdin.readline()):
    transaction.put(base64.b64decode(key), base64.b64decode(value))
print("begun", flush=True)
sys.stdin.readline()
transaction.commit()
env.close()
"""


def records(case: Case, prefix: str) -> list[tuple[bytes, bytes]]:
    """The keys and values that arrays of ``given.npz`` hold, in the order in which to put them."""
    arrays = case.given_arrays
    try:
        keys, values, offsets = (arrays[f"{prefix}_{name}"] for name in ("keys", "values", "offsets"))
    except KeyError as missing:
        raise CaseError(f"{case.folder / 'given.npz'}: no array {missing}, which a database is made of") from None
    return [
        (bytes(key), values[start:end].tobytes())
        for key, start, end in zip(keys, offsets[:-1].tolist(), offsets[1:].tolist())
    ]


def make_databases(case: Case, caffe: Pipeline) -> None:
    """Make those that the case does not give as files."""
    for entry in case.given.get("dbs") or ():
        if "files" not in entry:
            caffe.write_database(entry["name"], entry["backend"], records(case, entry["arrays"]))


class Writer:
    """Another process which has put records into an LMDB, in a transaction that is open."""

    def __init__(self, case: Case, name: str, prefix: str) -> None:
        pairs = [[base64.b64encode(part).decode() for part in pair] for pair in records(case, prefix)]
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        if self._say(json.dumps(pairs)) != "begun\n":
            self.close()
            raise CaseError(f"the process that should write to {name} did not begin")

    def _say(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def commit(self) -> None:
        """Commit, and wait until the process has ended."""
        self._say("commit")  # the answer is the end of its output
        self._process.communicate()

    def close(self) -> None:
        """End the process; what it has not committed is lost."""
        self._process.kill()
        self._process.communicate()
