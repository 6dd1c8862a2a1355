"""Finding and reading cases: folders with a ``case.json``, as FORMAT.md describes them."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

_REQUIRED = {"kind": str, "name": str, "upstream": str, "mode": str, "given": dict, "recorded": dict}


class CaseError(Exception):
    """A case, or a file of it, that cannot be read. The message names the file."""


@dataclass
class Recording:
    """What a case's run gave: recorded from a Caffe, or just now by an engine, in the same form."""

    values: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One case. ``problem`` says why it cannot be read; then only ``id``, ``kind`` and ``folder`` are of use."""

    folder: Path
    kind: str
    name: str
    document: dict[str, Any] = field(default_factory=dict, repr=False)
    problem: str = ""

    @property
    def id(self) -> str:
        return f"{self.kind}/{self.name}"

    @property
    def group(self) -> str:
        return self.name.partition("/")[0]

    @property
    def upstream(self) -> str:
        """Key of provenance.json: which Caffe it was recorded from."""
        return self.document["upstream"]

    @property
    def mode(self) -> str:
        return self.document["mode"]

    @property
    def seed(self) -> int | None:
        """What ``set_random_seed`` was called with; None where no random number is drawn."""
        return self.document.get("seed")

    @property
    def given(self) -> dict[str, Any]:
        return self.document["given"]

    @cached_property
    def given_arrays(self) -> dict[str, np.ndarray]:
        return self._load("given.npz")

    @cached_property
    def recorded(self) -> Recording:
        return Recording(self.document["recorded"], self._load("recorded.npz"))

    def recorded_array(self, name: str) -> np.ndarray:
        """An array of recorded.npz that case.json speaks of. Raises CaseError if it is not there."""
        if name not in self.recorded.arrays:
            raise CaseError(f"{self.folder / 'recorded.npz'}: no array {name!r}, which case.json speaks of")
        return self.recorded.arrays[name]

    def array_file(self, file: str) -> dict[str, np.ndarray]:
        """The arrays of another ``.npz`` file of the case; none if it is not there."""
        return self._load(file)

    def exactness(self, what: str = "*") -> str:
        """The class of a group of recorded values: bitwise, libm, blas … ; ``what`` is a key of the case's table."""
        stated = self.document.get("exactness", self.document["recorded"].get("exactness", "bitwise"))
        return stated if isinstance(stated, str) else stated.get(what, stated.get("*", "bitwise"))

    def fresh(self) -> Case:
        """The same case without the arrays it has loaded."""
        return Case(self.folder, self.kind, self.name, self.document, self.problem)

    def with_given(self, arrays: dict[str, np.ndarray]) -> Case:
        """The same case with other arrays given."""
        other = self.fresh()
        other.__dict__["given_arrays"] = arrays  # in the place of what would be read
        return other

    def with_exactness(self, exactness: str) -> Case:
        """The same case with one class for all of its arrays."""
        return Case(self.folder, self.kind, self.name, self.document | {"exactness": exactness}, self.problem)

    def _load(self, file: str) -> dict[str, np.ndarray]:
        path = self.folder / file
        if not path.exists():
            return {}
        try:
            # Opened here because np.load leaves a broken file open.
            with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
                return {name: arrays[name] for name in arrays.files}
        except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
            raise CaseError(f"{path}: cannot be read: {error}") from error


def read_case(folder: Path) -> Case:
    """Read one case's ``case.json``. A broken one gives a Case with ``problem`` set."""
    path = folder / "case.json"
    # Where case.json cannot tell, the folder does: <kind>/<group>/<name>.
    guess = [*folder.resolve().parts[-3:]]
    kind, name = (guess[0], "/".join(guess[1:])) if len(guess) == 3 else ("unknown", folder.name)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return Case(folder, kind, name, problem=f"{path}: cannot be read: {error}")
    problem = _problem_of(document)
    if problem:
        return Case(folder, kind, name, problem=f"{path}: {problem}")
    return Case(folder, document["kind"], document["name"], document)


def _problem_of(document: Any) -> str:
    if not isinstance(document, dict):
        return "not a JSON object"
    if document.get("format") != 1:
        return f"format {document.get('format')!r} is unknown: this suite reads format 1"
    for key, expected in _REQUIRED.items():
        if not isinstance(document.get(key), expected):
            return f"key {key!r} is missing or no {'object' if expected is dict else 'string'}"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", document["kind"]):
        return f"{document['kind']!r} is no kind of case"
    return ""


def find_cases(root: Path) -> list[Case]:
    """All cases in ``root`` and below, in order of their folders; ``root`` may be a single case."""
    # Absolute: cases run in folders of their own.
    return [read_case(path.parent) for path in sorted(root.absolute().rglob("case.json"))]


def select(cases: Iterable[Case], kinds: Iterable[str] = (), patterns: Iterable[str] = ()) -> list[Case]:
    """Those of the given kinds (all if none) whose id matches one of the patterns (all if none)."""
    wanted, globs = set(kinds), list(patterns)
    return [
        case
        for case in cases
        if (not wanted or case.kind in wanted) and (not globs or any(matches(case.id, glob) for glob in globs))
    ]


def matches(case_id: str, pattern: str) -> bool:
    """Whether a glob fits ``kind/group/name`` or whole parts of it: ``gaussian/*``, ``rng/gaussian``, ``*-long``."""
    parts = case_id.split("/")
    return any(
        fnmatchcase("/".join(parts[start:end]), pattern)
        for start in range(len(parts))
        for end in range(start + 1, len(parts) + 1)
    )


def provenance(root: Path) -> dict[str, Any]:
    """``provenance.json`` of the folder of cases, or of one above it; empty if there is none."""
    for folder in [root, *root.resolve().parents]:
        path = folder / "provenance.json"
        if path.is_file():
            try:
                return json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise CaseError(f"{path}: cannot be read: {error}") from error
    return {}
