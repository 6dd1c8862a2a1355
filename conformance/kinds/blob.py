"""Kind ``blob``: scripts of operations on Blobs (FORMAT-blob.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from conformance.cases import Case, Recording
from conformance.compare import blas_bound
from conformance.engines import Engine
from conformance.outcome import Findings

_TYPES = {"float": np.float32, "double": np.float64, "int": np.int32, "unsigned": np.uint32}
_MEMORIES = ("data", "diff", "shape_data")


def play(case: Case, engine: Engine) -> Recording:
    """``values["scripts"]``: the steps of every script, in the form that was recorded."""
    return Recording({"scripts": [_Script(case, script, engine).steps for script in case.given["scripts"]]})


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Exact, but for sums. A step with undefined behaviour is right if there is one: refused or done."""
    pairs = zip(case.given["scripts"], case.recorded.values["scripts"], got.values["scripts"])
    for k, (script, recorded, steps) in enumerate(pairs):
        defined = len(recorded) - 1 if script.get("undefined") else len(recorded)
        for i, (op, expected) in enumerate(zip(script["ops"], recorded[:defined])):
            where = f"scripts[{k}][{i}] {op[0]}({', '.join(map(str, op[1:]))})"
            step = steps[i] if i < len(steps) else {}
            if expected.get("exactness") == "blas" and "ret" in step:
                elements = expected["blobs"][op[1]]["count"]
                dtype = np.dtype(_TYPES[script.get("dtype", "float")])
                sums = [np.asarray(side["ret"], dtype) for side in (expected, step)]
                # The absolute values of the terms add up to the sum itself.
                findings.array(where, sums[0], sums[1], "blas", blas_bound(elements, abs(sums[0]), dtype))
                expected, step = ({**side, "ret": None, "exactness": "blas"} for side in (expected, step))
            findings.value(where, expected, step)
        findings.value(f"scripts[{k}]: number of steps", len(recorded), len(steps))


class _Script:
    """One script in a fresh world."""

    def __init__(self, case: Case, script: dict[str, Any], engine: Engine) -> None:
        self.engine = engine
        self.dtype = np.dtype(_TYPES[script.get("dtype", "float")])
        self.blobs: dict[str, Any] = {}
        self.identities: WeakKeyDictionary[Any, str] = WeakKeyDictionary()  # must not keep a memory alive
        self.numbers = count()
        self.steps: list[dict[str, Any]] = []
        mode = script.get("mode", case.mode)
        with engine.memories(case.upstream, mode, script.get("device", 0)) as self.world:
            try:
                for op in script["ops"]:
                    self.steps.append(self._step(*op))
            except engine.Fatal as fatal:
                refusal = {"file": fatal.file, "message": fatal.message}
                self.steps.append({"fatal": refusal, "events": self.world.take_events()})

    def _step(self, operation: str, first: Any, *arguments: Any) -> dict[str, Any]:
        if operation in ("set_mode", "set_device"):
            getattr(self.world, operation)(first)
            return {}
        if operation in _CREATING:
            ret = _CREATING[operation](self, first, *arguments)
        else:
            ret = _OPERATIONS[operation](self, self.blobs[first], *arguments)
        return {"ret": ret, "events": self.world.take_events(), "blobs": dict(self._states())}

    def _states(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, blob in sorted(self.blobs.items()):
            state: dict[str, Any] = {
                "shape": list(blob.shape),
                "count": blob.count,
                "capacity": blob.capacity,
            }
            for key, memory in zip(_MEMORIES, blob.memories):
                state[key] = None if memory is None else [self._identity(memory), memory.size, memory.head.name]
            yield name, state

    def _identity(self, memory: Any) -> str:
        if memory not in self.identities:
            self.identities[memory] = f"m{next(self.numbers)}"
        return self.identities[memory]


def _new(script: _Script, name: str, shape: list[int] | None = None) -> None:
    script.blobs[name] = script.world.blob(shape, script.dtype)


def _new4(script: _Script, name: str, *dims: int) -> None:
    _new(script, name, list(dims))


def _delete(script: _Script, name: str) -> None:
    del script.blobs[name]  # the last reference, so that its memory is freed now


_CREATING: dict[str, Callable[..., None]] = {"new": _new, "new4": _new4, "delete": _delete}


def _attribute(name: str) -> Callable[..., Any]:
    return lambda script, blob: getattr(blob, name)


def _method(name: str) -> Callable[..., Any]:
    return lambda script, blob, *arguments: _plain(getattr(blob, name)(*arguments))


def _with_other(name: str) -> Callable[..., Any]:
    return lambda script, blob, other, *arguments: getattr(blob, name)(script.blobs[other], *arguments)


def _plain(value: Any) -> Any:
    """A NumPy scalar as the Python number it equals."""
    return value.item() if isinstance(value, np.generic) else value


def _count(script: _Script, blob: Any, *axes: int) -> int:
    return blob.count_range(*axes) if axes else blob.count


def _at4(name: str) -> Callable[..., Any]:
    return lambda script, blob, *indices: _plain(getattr(blob, f"cpu_{name}")().reshape(-1)[blob.offset4(*indices)])


def _reshape_proto(script: _Script, blob: Any, dims: list[int]) -> None:
    shape = script.engine.message("BlobShape", "")
    shape.dim.extend(dims)
    blob.reshape_proto(shape)


def _access(call: str) -> Callable[..., Any]:
    side, which = call.split("_")[-2:]

    def access(script: _Script, blob: Any, values: list[Any] | None = None) -> dict[str, Any]:
        array = getattr(blob, call)()
        blocks = script.world.sides(blob.memories[_MEMORIES.index("shape_data" if which == "shape" else which)])
        block = blocks[side == "gpu"]
        held = b"" if block is None else script.world.read(block).tobytes()
        found = np.frombuffer(held, array.dtype)[: array.size]
        if values is not None and block is not None:
            script.world.write(block, np.array(values, array.dtype))
        return {"ptr": script.world.name(block), "values": found.tolist()}

    return access


def _set(call: str) -> Callable[..., None]:
    def set_memory(script: _Script, blob: Any, values: list[Any] | None) -> None:
        block = None
        if values is not None:
            new = script.world.caller_host if call == "set_cpu_data" else script.world.caller_device
            block = new(np.array(values, script.dtype))
        getattr(blob, call)(block)

    return set_memory


def _memory(script: _Script, blob: Any, which: str) -> Any:
    return blob.data_memory() if which == "data" else blob.diff_memory()


def _demand(which: str) -> Callable[..., None]:
    def demand(script: _Script, blob: Any) -> None:
        _memory(script, blob, which)

    return demand


def _async_push(script: _Script, blob: Any, which: str) -> None:
    _memory(script, blob, which).async_gpu_push(script.world.stream)


def _shape_equals(script: _Script, blob: Any, text: str) -> bool:
    return blob.shape_equals(script.engine.message("BlobProto", text))


def _from_proto(script: _Script, blob: Any, text: str, reshape: int) -> None:
    blob.from_proto(script.engine.message("BlobProto", text), bool(reshape))


def _to_proto(script: _Script, blob: Any, write_diff: int, text: str = "") -> str:
    proto = script.engine.message("BlobProto", text)
    blob.to_proto(proto, bool(write_diff))
    return proto.SerializeToString().hex()


_ATTRIBUTES = ("shape_string", "num_axes", "num", "channels", "height", "width")
_METHODS = (
    "reshape",
    "canonical_axis",
    "legacy_shape",
    "offset4",
    "offset",
    "data_at",
    "diff_at",
    "update",
    "asum_data",
)
_MORE_METHODS = ("asum_diff", "sumsq_data", "sumsq_diff", "scale_data", "scale_diff")
_ACCESSORS = [
    f"{how}{side}_{which}" for how in ("", "mutable_") for side in ("cpu", "gpu") for which in ("data", "diff")
]

_OPERATIONS: dict[str, Callable[..., Any]] = {
    **{name: _attribute(name) for name in _ATTRIBUTES},
    **{name: _method(name) for name in (*_METHODS, *_MORE_METHODS)},
    **{name: _with_other(name) for name in ("reshape_like", "copy_from", "share_data", "share_diff")},
    **{name: _access(name) for name in (*_ACCESSORS, "gpu_shape")},
    **{name: _set(name) for name in ("set_cpu_data", "set_gpu_data")},
    "reshape4": _method("reshape"),
    "reshape_proto": _reshape_proto,
    "shape": _method("dim"),
    "count": _count,
    "data_at4": _at4("data"),
    "diff_at4": _at4("diff"),
    "data": _demand("data"),
    "diff": _demand("diff"),
    "async_push": _async_push,
    "shape_equals": _shape_equals,
    "from_proto": _from_proto,
    "to_proto": _to_proto,
}
