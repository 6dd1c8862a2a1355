"""Memory of an original Caffe, through the program ``record_memories``."""

from __future__ import annotations

import json
from collections import Counter
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.outcome import Unsupported

if TYPE_CHECKING:
    from conformance.engines.original import Process

_TYPES = {"float32": "float", "float64": "double", "int32": "int", "uint32": "unsigned"}
Head = Enum("Head", ["UNINITIALIZED", "HEAD_AT_CPU", "HEAD_AT_GPU", "SYNCED"])


class Block:
    """A block of host memory by its address; ``name`` is ``h0`` … or ``u0`` …"""

    def __init__(self, address: str, name: str) -> None:
        self.address, self.name = address, name


class OriginalMemories:
    """``conformance.engines.base.Memories``, for a Caffe without GPU code."""

    stream: Any = None

    def __init__(self, process: Process, mode: str) -> None:
        self._process = process
        self._blocks: dict[str, Block] = {}  # by address, the latest
        self._count: Counter[str] = Counter()
        self._events: list[list[Any]] = []
        self._memories: dict[int, OriginalMemory] = {}
        self._things = 0
        self.set_mode(mode)

    def ask(self, *words: Any) -> Any:
        """The value of an answer; its events are kept."""
        try:
            value, events = json.loads(self._process.ask(*words))
        finally:
            self._note(json.loads(self._process.parting or "[]"))
            self._process.parting = ""
        self._note(events)
        return value

    @property
    def is_open(self) -> bool:
        return self._process.is_open

    def _note(self, events: list[list[Any]]) -> None:
        for event in events:
            if event[0] == "h_alloc":
                self._christen("h", event[-1])
            self._events.append([self._named(part) for part in event])

    def _named(self, part: Any) -> Any:
        return self._blocks[part].name if isinstance(part, str) and part in self._blocks else part

    def _christen(self, letter: str, address: str) -> Block:
        self._blocks[address] = Block(address, f"{letter}{self._count[letter]}")
        self._count[letter] += 1
        return self._blocks[address]

    def block(self, address: str | None) -> Block | None:
        return None if address is None else self._blocks[address]

    def new_name(self) -> str:
        self._things += 1
        return f"t{self._things}"

    def memory(self, state: list[Any] | None) -> OriginalMemory | None:
        """The memory of a blob, always the same object for the same one."""
        if state is None:
            return None
        found = self._memories.setdefault(state[0], OriginalMemory(self, None))
        found.known = state
        return found

    def set_mode(self, mode: str) -> None:
        self.ask("mode", mode)

    def set_device(self, device: int) -> None:
        self.ask("device", device)

    def fail_next(self, function: str) -> None:
        raise Unsupported(f"a failing {function} cannot be provoked")

    def syncedmem(self, size: int | None) -> OriginalMemory:
        name = self.new_name()
        self.ask("memory", name, "default" if size is None else size)
        return OriginalMemory(self, name)

    def blob(self, shape: list[int] | None, dtype: np.dtype) -> OriginalBlob:
        return OriginalBlob(self, shape, dtype)

    def caller_host(self, array: np.ndarray) -> Block:
        return self._christen("u", self.ask("caller", array.tobytes().hex() or "-"))

    def caller_device(self, array: np.ndarray) -> Any:
        return Block("0", "v0")  # nothing that a Caffe without GPU code would look at

    def sides(self, memory: OriginalMemory) -> tuple[Block | None, Block | None]:
        state = memory.state()
        return self.block(state[4]), self.block(state[5])

    def read(self, block: Block) -> np.ndarray:
        return np.frombuffer(bytes.fromhex(self.ask("read", block.address).replace("-", "")), np.uint8)

    def write(self, block: Block, data: np.ndarray) -> None:
        self.ask("write", block.address, data.tobytes().hex() or "-")

    def name(self, block: Block | None) -> str | None:
        return None if block is None else block.name

    def take_events(self) -> list[list[Any]]:
        events, self._events = self._events, []
        return events


class OriginalMemory:
    """A SyncedMemory: one by itself, or (without a name) one of a blob's as its state told last."""

    def __init__(self, world: OriginalMemories, name: str | None) -> None:
        self._world, self._name = world, name
        self.known: list[Any] = []

    def state(self) -> list[Any]:
        return self.known if self._name is None else self._world.ask("state", self._name)

    @property
    def size(self) -> int:
        return self.state()[1]

    @property
    def head(self) -> Head:
        return Head[self.state()[2]]

    @property
    def own_cpu_data(self) -> int:
        return self.state()[3]

    own_gpu_data = 0  # without GPU code

    def _call(self, function: str, *words: Any) -> Block | None:
        return self._world.block(self._world.ask("call", self._name, function, *words))

    def cpu_data(self) -> Block | None:
        return self._call("cpu_data")

    def gpu_data(self) -> Block | None:
        return self._call("gpu_data")

    def mutable_cpu_data(self) -> Block | None:
        return self._call("mutable_cpu_data")

    def mutable_gpu_data(self) -> Block | None:
        return self._call("mutable_gpu_data")

    def set_cpu_data(self, block: Block | None) -> None:
        self._call("set_cpu_data", block.address if block else 0)

    def set_gpu_data(self, block: Block | None) -> None:
        self._call("set_gpu_data", block.address if block else 0)

    def async_gpu_push(self, stream: Any) -> None:
        raise Unsupported("async_gpu_push, which a Caffe without GPU code does not have")

    def close(self) -> None:
        self._world.ask("delete", self._name)


_VALUES = ("shape_string", "num_axes", "num", "channels", "height", "width")
_NUMBERS = ("canonical_axis", "legacy_shape", "offset4", "update", "asum_data", "asum_diff", "sumsq_data", "sumsq_diff")
_ACCESS = tuple(
    f"{how}{side}_{which}" for how in ("", "mutable_") for side in ("cpu", "gpu") for which in ("data", "diff")
)


class OriginalBlob:
    """A Blob, with the methods of ``refcaffe.Blob`` that kind blob uses."""

    def __init__(self, world: OriginalMemories, shape: list[int] | None, dtype: np.dtype) -> None:
        self._world, self._dtype, self._name = world, dtype, world.new_name()
        world.ask("blob", self._name, _TYPES[dtype.name], *([] if shape is None else ["vector", *shape]))

    def __del__(self) -> None:
        if self._world.is_open:  # else it went with the process
            self._world.ask("delete", self._name)

    def call(self, function: str, *words: Any) -> Any:
        return self._world.ask("call", self._name, function, *words)

    def _state(self) -> SimpleNamespace:
        shape, count, capacity, *memories = self._world.ask("state", self._name)
        return SimpleNamespace(shape=shape, count=count, capacity=capacity, memories=memories)

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "count", "capacity"):
            return getattr(self._state(), name)
        if name in _VALUES:
            return self.call(name)
        if name in _NUMBERS:
            return partial(self.call, name)
        if name in (*_ACCESS, "gpu_shape"):
            return partial(self._access, name)
        raise AttributeError(name)

    @property
    def memories(self) -> list[OriginalMemory | None]:
        return [self._world.memory(memory) for memory in self._state().memories]

    def _access(self, function: str) -> np.ndarray:
        """What the memory holds after the call; a copy."""
        address = self.call(function)
        block = self._world.block(address)
        held = b"" if block is None else self._world.read(block).tobytes()
        dtype = np.dtype(np.int32) if function == "gpu_shape" else self._dtype
        return np.frombuffer(held, dtype)[: self.count]

    def data_memory(self) -> OriginalMemory | None:
        self.call("data")
        return self.memories[0]

    def diff_memory(self) -> OriginalMemory | None:
        self.call("diff")
        return self.memories[1]

    def reshape(self, *dims: Any) -> None:
        if len(dims) == 1 and not isinstance(dims[0], int):
            self.call("reshape", *dims[0])
        else:
            self.call("reshape4", *dims)

    def reshape_proto(self, shape: Any) -> None:
        self.call("reshape_proto", shape.SerializeToString().hex() or "-")

    def dim(self, axis: int) -> int:
        return self.call("shape", axis)

    def count_range(self, *axes: int) -> int:
        return self.call("count", *axes)

    def offset(self, indices: list[int]) -> int:
        return self.call("offset", *indices)

    def data_at(self, indices: list[int]) -> Any:
        return self.call("data_at", *indices)

    def diff_at(self, indices: list[int]) -> Any:
        return self.call("diff_at", *indices)

    def scale_data(self, factor: float) -> None:
        self.call("scale_data", self._dtype.type(factor).tobytes().hex())

    def scale_diff(self, factor: float) -> None:
        self.call("scale_diff", self._dtype.type(factor).tobytes().hex())

    def set_cpu_data(self, block: Block | None) -> None:
        self.call("set_cpu_data", block.address if block else 0)

    def reshape_like(self, other: OriginalBlob) -> None:
        self.call("reshape_like", other._name)

    def share_data(self, other: OriginalBlob) -> None:
        self.call("share_data", other._name)

    def share_diff(self, other: OriginalBlob) -> None:
        self.call("share_diff", other._name)

    def copy_from(self, other: OriginalBlob, copy_diff: int = 0, reshape: int = 0) -> None:
        self.call("copy_from", other._name, int(copy_diff), int(reshape))

    def shape_equals(self, proto: Any) -> bool:
        return self.call("shape_equals", proto.SerializeToString().hex() or "-")

    def from_proto(self, proto: Any, reshape: bool) -> None:
        self.call("from_proto", proto.SerializeToString().hex() or "-", int(reshape))

    def to_proto(self, proto: Any, write_diff: bool) -> None:
        data = self.call("to_proto", proto.SerializeToString().hex() or "-", int(write_diff))
        proto.ParseFromString(bytes.fromhex(data.replace("-", "")))
