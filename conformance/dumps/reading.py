"""What a run left: a folder with an ``index.json``, or just arrays by blob name (docs/compare.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

FORMAT = "caffe-dump 1"
KINDS = ("param", "data", "diff", "param_diff")  # lists of arrays that a layer of an index has


class DumpError(Exception):
    """A dump that cannot be read. The message names the file."""


class Dump:
    """One run. ``layers`` are the entries of its index, none for arrays by blob name alone."""

    def __init__(self, path: Path) -> None:
        """Reads the index, not the arrays. Raises DumpError."""
        self.path = path
        self.index: dict[str, Any] = {}
        self._plain: dict[str, Callable[[], np.ndarray]] = {}
        if path.is_file() and path.suffix == ".npz":
            archive = _load(path)
            self._plain = {name: partial(archive.__getitem__, name) for name in archive.files}
        elif (path / "index.json").is_file():
            self.index = _read_index(path / "index.json")
        elif path.is_dir():
            files = {file.relative_to(path).with_suffix("").as_posix(): file for file in sorted(path.rglob("*.npy"))}
            self._plain = {unquote(name): partial(_load, file) for name, file in files.items()}
        else:
            raise DumpError(f"{path}: no folder and no .npz file")
        if not self.index and not self._plain:
            raise DumpError(f"{path}: neither an index.json nor .npy files in it")
        self.layers: list[dict[str, Any]] = self.index.get("layers", [])
        self._checked: set[str] = set()
        self._by_layer = {(layer["name"], self._occurrence(k)): layer for k, layer in enumerate(self.layers)}
        self._by_blob = self._final_blobs()

    def _occurrence(self, k: int) -> int:
        """How many layers before have the name of layer ``k``: names need not be unique."""
        return sum(layer["name"] == self.layers[k]["name"] for layer in self.layers[:k])

    def _final_blobs(self) -> dict[str, Any]:
        final: dict[str, Any] = dict(self._plain)
        for layer in self.layers:
            final |= {top: entry for top, entry in zip(layer.get("tops", ()), layer.get("data", ())) if entry}
        for layer in reversed(self.layers):
            entries = zip(layer.get("bottoms", ()), layer.get("diff", ()))
            final |= {f"{bottom}.diff": entry for bottom, entry in entries if entry}
        return final

    @property
    def engine(self) -> str:
        return str(self.index.get("engine", "an engine that does not say its name"))

    def definition(self) -> str | None:
        """The text of the net's definition after set-up, if it is there."""
        name = self.index.get("definition")
        if name is None:
            return None
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DumpError(f"{self.path / name}: cannot be read: {error}") from error

    def of_layer(self, name: str, occurrence: int, kind: str, i: int) -> np.ndarray | None:
        """Array ``i`` of a kind of the layer with this name; None if there is none."""
        entries = self._by_layer.get((name, occurrence), {}).get(kind, ())
        return self._array(entries[i]) if i < len(entries) and entries[i] else None

    def has_layer(self, name: str, occurrence: int) -> bool:
        return (name, occurrence) in self._by_layer

    def of_blob(self, name: str) -> np.ndarray | None:
        """What a blob held in the end, ``NAME.diff`` for its diff; None if it is not there."""
        entry = self._by_blob.get(name)
        return None if entry is None else self._array(entry)

    def given_diffs(self) -> dict[str, np.ndarray]:
        """The diffs that the backward pass began with, by blob name."""
        entries = self.index.get("given", {}).get("diff", {})
        return {name: self._array(entry) for name, entry in entries.items()}

    @property
    def blob_names(self) -> set[str]:
        return {name for name in self._by_blob if not name.endswith(".diff")}

    @property
    def has_diffs(self) -> bool:
        return any(name.endswith(".diff") for name in self._by_blob)

    def _array(self, entry: Any) -> np.ndarray:
        if callable(entry):
            return entry()
        file = entry["file"]
        array = _load(self.path / file)
        if "sha256" in entry and file not in self._checked:
            little = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
            if hashlib.sha256(little.tobytes()).hexdigest() != entry["sha256"]:
                raise DumpError(f"{self.path / file}: is not what index.json says (sha256)")
            self._checked.add(file)
        return array


def _load(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DumpError(f"{path}: cannot be read: {error}") from error


def _read_index(path: Path) -> dict[str, Any]:
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DumpError(f"{path}: cannot be read: {error}") from error
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise DumpError(f"{path}: its 'format' is not {FORMAT!r}")
    layers = index.get("layers")
    if not isinstance(layers, list) or not all(isinstance(layer, dict) and "name" in layer for layer in layers):
        raise DumpError(f"{path}: 'layers' is no list of layers with names")
    for layer in layers:
        for kind in KINDS:
            for entry in layer.get(kind, ()):
                if entry and not (isinstance(entry, dict) and isinstance(entry.get("file"), str)):
                    raise DumpError(f"{path}: layer {layer['name']!r}, {kind}: an entry without a 'file'")
    return index
