"""Operations on nets (FORMAT-net.md)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from conformance.engines.pycaffe import NetPart
    from conformance.operations.world import Operation, World

Op = dict[str, Any]

_DIGEST = 16  # values of an array that a digest keeps: the first ones, and as many strided


def contents(blob: Any, which: str) -> Any:
    """A blob's ``data`` or ``diff``; one without elements has no memory to ask for."""
    return getattr(blob, which) if blob.count else np.zeros(tuple(blob.shape), np.float32)


def _seed(world: World, op: Op) -> None:
    world.caffe.set_random_seed(op["value"])


def _net(world: World, op: Op) -> None:
    if op.get("positional"):
        net = world.caffe.old_net(op["model"], op["weights"], op["phase"])
    else:
        stages = op.get("stages") or ()
        net = world.caffe.net(op["model"], op["phase"], op.get("level", 0), stages, op.get("weights"))
    world.nets[op.get("as", "net")] = net


def _info(world: World, op: Op) -> None:
    net = world.net(op)
    info = net.structure()
    if op.get("proto"):
        info["proto"] = net.definition()
    world.note("info", op["as"], info)


def _shapes(world: World, op: Op) -> None:
    world.note("shapes", op["as"], {name: list(blob.shape) for name, blob in world.net(op).blobs.items()})


def _value(world: World, op: Op) -> Any:
    """What ``set`` and ``set_param`` write."""
    if "value" in op:
        return op["value"]
    array = world.array(op["array"])
    return array.astype(np.float32) + np.float32(op["offset"]) if "offset" in op else array


def _set(world: World, op: Op) -> None:
    getattr(world.net(op).blobs[op["blob"]], op.get("what", "data"))[...] = _value(world, op)


def _set_param(world: World, op: Op) -> None:
    getattr(world.net(op).params[op["layer"]][op["index"]], op.get("what", "data"))[...] = _value(world, op)


def _reshape_blob(world: World, op: Op) -> None:
    world.net(op).blobs[op["blob"]].reshape(*op["shape"])


def _forward(world: World, op: Op) -> None:
    net = world.net(op)
    loss = net.run_forward(op.get("start"), op.get("end"))
    if "as" in op:
        world.note("loss", op["as"], loss)
    if "BatchNorm" in net.layer_types:  # its statistics are parameters
        world.exact = False


def _backward(world: World, op: Op) -> None:
    world.net(op).run_backward(op.get("start"), op.get("end"))


def _update(world: World, op: Op) -> None:
    world.net(op).update()
    world.exact = False


def _callbacks(world: World, op: Op) -> None:
    events: list[str] = []
    world.note("events", op["as"], events)
    world.net(op).watch(lambda when, layer: events.append(f"{when} {layer}"))


def _dumped(net: NetPart, what: str, only: list[str] | None) -> Iterator[tuple[str, Any]]:
    """Names and blobs that ``dump`` writes for an entry of its ``what``."""
    if what.startswith("blob"):
        yield from ((name, blob) for name, blob in net.blobs.items() if only is None or name in only)
    else:
        yield from ((f"{layer}/{i}", blob) for layer, blobs in net.params.items() for i, blob in enumerate(blobs))


def _dump(world: World, op: Op) -> None:
    for what in op["what"]:  # blobs, blob_diffs, params, param_diffs
        which = "diff" if what.endswith("diffs") else "data"
        prefix = f"{op['as']}/{what.removesuffix('s')}"
        dumped = _dumped(world.net(op), what, op.get("only"))
        arrays = {f"{prefix}/{name}": contents(blob, which) for name, blob in dumped}
        if op.get("digest"):
            _put_digest(world, prefix, arrays, op["digest"] == "sha")
        else:
            for name, array in arrays.items():
                world.put(name, array)


def _put_digest(world: World, prefix: str, arrays: dict[str, Any], sha: bool) -> None:
    digest: dict[str, Any] = {"names": list(arrays), "shapes": [list(array.shape) for array in arrays.values()]}
    if sha:
        little = (np.ascontiguousarray(array, "<f4") for array in arrays.values())
        digest["sha256"] = [hashlib.sha256(array.tobytes()).hexdigest() for array in little]
    world.note("digests", prefix, digest)
    flat = [np.ravel(array) for array in arrays.values()]
    rows = {
        "stats": [_stats(array.astype(np.float64)) for array in flat],
        "first": [_padded(array[:_DIGEST]) for array in flat],
        "strided": [_padded(array[_stride(array.size)]) for array in flat],
    }
    for key, values in rows.items():
        world.put(f"{prefix}/{key}", np.array(values, np.float64))


def _stats(x: np.ndarray) -> list[float]:
    return [x.sum(), abs(x).sum(), (x * x).sum(), *((x.min(), x.max()) if x.size else (np.nan, np.nan))]


def _stride(count: int) -> np.ndarray:
    m = min(_DIGEST, count)
    return np.arange(m) * count // max(m, 1)


def _padded(values: np.ndarray) -> np.ndarray:
    return np.pad(values.astype(np.float64), (0, _DIGEST - values.size), constant_values=np.nan)


def _share_with(world: World, op: Op) -> None:
    world.net(op).share_with(world.net(op, "other"))


def _inputs(world: World, op: Op) -> dict[str, np.ndarray]:
    return {name: world.array(array) for name, array in op.get("inputs", {}).items()}


def _returned(world: World, op: Op, arrays: dict[str, Any]) -> None:
    world.note("returned", op["as"], sorted(arrays))
    for name, array in arrays.items():
        world.put(f"{op['as']}/{name}", array)


def _range(op: Op) -> dict[str, Any]:
    return {key: op[key] for key in ("blobs", "diffs", "start", "end") if key in op}


def _py_forward(world: World, op: Op) -> None:
    _returned(world, op, world.net(op).method("forward")(**_range(op), **_inputs(world, op)))


def _py_backward(world: World, op: Op) -> None:
    _returned(world, op, world.net(op).method("backward")(**_range(op), **_inputs(world, op)))


def _forward_all(world: World, op: Op) -> None:
    _returned(world, op, world.net(op).method("forward_all")(**_range(op), **_inputs(world, op)))


def _set_input_arrays(world: World, op: Op) -> None:
    world.net(op).method("set_input_arrays")(world.array(op["data"]), world.array(op["labels"]))


def _plain(method: str) -> Operation:
    return lambda world, op: world.net(op).method(method)()


def _with_file(method: str) -> Operation:
    return lambda world, op: world.net(op).method(method)(op["file"])


OPERATIONS: dict[str, Operation] = {
    "seed": _seed,
    "net": _net,
    "info": _info,
    "shapes": _shapes,
    "set": _set,
    "set_param": _set_param,
    "reshape_blob": _reshape_blob,
    "reshape": _plain("reshape"),
    "forward": _forward,
    "backward": _backward,
    "clear_param_diffs": _plain("clear_param_diffs"),
    "update": _update,
    "callbacks": _callbacks,
    "dump": _dump,
    "share_with": _share_with,
    "py_forward": _py_forward,
    "py_backward": _py_backward,
    "forward_all": _forward_all,
    "set_input_arrays": _set_input_arrays,
    **{name: _with_file(name) for name in ("save", "save_hdf5", "copy_from", "load_hdf5")},
}
