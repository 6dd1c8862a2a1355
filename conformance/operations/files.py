"""Operations on files (FORMAT-snapshot.md), and what files hold."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.cases import CaseError
from conformance.outcome import Unsupported

if TYPE_CHECKING:
    from conformance.engines import Engine
    from conformance.operations.world import Operation, World

Op = dict[str, Any]

_MESSAGES = {".caffemodel": "NetParameter", ".solverstate": "SolverState", ".binaryproto": "BlobProto"}
_LOCKS = ("lock.mdb", "LOCK")  # which reading a database makes
_FLOATS = {"data": np.float32, "diff": np.float32, "double_data": np.float64, "double_diff": np.float64}


def is_hdf5(name: str) -> bool:
    """Whether a file is HDF5, as its name says."""
    return name.endswith((".h5", ".hdf5"))


def _files(world: World, op: Op) -> None:
    written = sorted(path for path in world.folder.rglob("*") if path.is_file() and path not in world.given_files)
    found = {}
    for path in written:
        data, name = path.read_bytes(), path.relative_to(world.folder).as_posix()
        if "__pycache__" in name or path.name in _LOCKS:
            continue
        found[name] = {"size": len(data)} | ({} if is_hdf5(name) else {"sha256": hashlib.sha256(data).hexdigest()})
    world.note("files", "files", found)


def _keep(world: World, op: Op) -> None:
    world.got.values["kept"] = [f"out/{name}" for name in op["files"]]
    world.note("kept_bytes", "kept", {f"out/{name}": (world.folder / name).read_bytes() for name in op["files"]})


def _tool(world: World, op: Op) -> None:
    world.note("tool_exit", op["as"], world.caffe.tool(op["args"]))


def _decode(world: World, op: Op) -> None:
    path = world.folder / op["file"]
    if is_hdf5(path.name):
        tree, arrays = read_hdf5(path.read_bytes())
        world.note("decoded", op["as"], {"tree": tree})
    else:
        text, arrays = read_protobuf(world.engine, path)
        world.note("decoded", op["as"], {"text": text})
    for name, array in arrays.items():
        world.put(f"{op['as']}/{name}", array)


def read_protobuf(engine: Engine, path: Path) -> tuple[str, dict[str, np.ndarray]]:
    """A file's message as text without its floats, and the floats as arrays."""
    from google.protobuf import text_format

    if path.suffix not in _MESSAGES:
        raise CaseError(f"{path.name}: what kind of file it is cannot be seen from its name")
    message = engine.message(_MESSAGES[path.suffix], "")
    message.ParseFromString(path.read_bytes())
    arrays: dict[str, np.ndarray] = {}
    if path.suffix == ".caffemodel":
        for layer in message.layer:
            for i, blob in enumerate(layer.blobs):
                arrays |= _taken(f"{layer.name}/{i}/", blob)
    elif path.suffix == ".solverstate":
        for i, blob in enumerate(message.history):
            arrays |= _taken(f"history/{i}/", blob)
    else:
        arrays = _taken("", message)
    return text_format.MessageToString(message, as_utf8=False), arrays


def _taken(prefix: str, blob: Any) -> dict[str, np.ndarray]:
    """The floats of a BlobProto, shaped; they are taken out of it."""
    arrays = {}
    if any(blob.HasField(name) for name in ("num", "channels", "height", "width")):
        shape = [blob.num, blob.channels, blob.height, blob.width]
    else:
        shape = list(blob.shape.dim)
    for name, dtype in _FLOATS.items():
        if len(getattr(blob, name)):
            arrays[prefix + name] = np.array(getattr(blob, name), dtype).reshape(shape)
        blob.ClearField(name)
    return arrays


def read_hdf5(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The groups and datasets of an HDF5 file, and its float datasets as arrays."""
    try:
        import h5py
    except ImportError as error:
        raise Unsupported("HDF5 files are decoded with h5py, which is not installed") from error
    tree: dict[str, Any] = {}
    arrays: dict[str, np.ndarray] = {}

    def visit(name: str, thing: Any) -> None:
        if isinstance(thing, h5py.Group):
            tree[f"{name}/"] = "group"
            return
        tree[name] = {"dtype": str(thing.dtype)}
        value = thing[()]
        if thing.shape == ():
            tree[name]["value"] = value.decode() if isinstance(value, bytes) else str(value)
            return
        tree[name]["shape"] = list(thing.shape)
        if thing.dtype.kind == "f":
            arrays[name] = value
        else:
            tree[name]["value"] = value.tolist()

    with h5py.File(io.BytesIO(data), "r") as file:
        file.visititems(visit)
    return tree, arrays


OPERATIONS: dict[str, Operation] = {"files": _files, "keep": _keep, "tool": _tool, "decode": _decode}
