"""What is mutated: the files of the recorded cases, each with the folder of its case."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"

# kind of input -> endings of the files that it is made of
KINDS = {
    "net": (".prototxt",),
    "solver": ("solver.prototxt",),
    "model": (".caffemodel",),
    "state": (".solverstate",),
    "blob": (".binaryproto",),
    "hdf5": ("caffemodel.h5", "/w.h5"),
    "hdf5_state": (".solverstate.h5",),
    "hdf5_data": ("/f0.h5", "/a.h5"),
}
_LARGEST = 1 << 16


@dataclass(frozen=True)
class Given:
    """A file as it is; ``home`` is the folder of the case, which the file's definitions name other files of."""

    path: str
    data: bytes
    home: Path


@cache
def _files() -> list[str]:
    return sorted(path.as_posix() for path in FIXTURES.rglob("*") if path.is_file())


def _home(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "out" else path.parent


@cache
def load(kind: str) -> list[Given]:
    """The files of a kind, in order of their names; equal ones once."""
    found: dict[bytes, Given] = {}
    for name in _files():
        path = Path(name)
        if name.endswith(KINDS[kind]) and path.stat().st_size <= _LARGEST:
            data = path.read_bytes()
            if kind != "net" or not name.endswith("solver.prototxt"):
                found.setdefault(data, Given(name, data, _home(path)))
    return list(found.values())
