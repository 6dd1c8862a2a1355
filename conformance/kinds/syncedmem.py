"""Kind ``syncedmem``: sequences of operations on one SyncedMemory (FORMAT-syncedmem.md)."""

from __future__ import annotations

import gzip
import json
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.engines import Engine
from conformance.engines.base import Memories
from conformance.outcome import Findings


def _lines(case: Case) -> list[dict[str, Any]]:
    path = case.folder / case.given["file"]
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
    except (OSError, EOFError, ValueError) as error:
        raise CaseError(f"{path}: cannot be read: {error}") from error
    if len(lines) != case.recorded.values["sequences"]:
        raise CaseError(f"{path}: {len(lines)} sequences, not {case.recorded.values['sequences']} as case.json says")
    return lines


def play(case: Case, engine: Engine) -> Recording:
    """``values["steps"]``: the steps of every line."""
    return Recording({"steps": [_play_line(case, line, engine) for line in _lines(case)]})


def judge(case: Case, got: Recording, findings: Findings) -> None:
    for number, (line, steps) in enumerate(zip(_lines(case), got.values["steps"]), 1):
        findings.value(f"line {number} ({', '.join(line['ops'])}): steps", line["steps"], steps)


def _play_line(case: Case, line: dict[str, Any], engine: Engine) -> list[dict[str, Any]]:
    size = line.get("size", case.given.get("size"))
    device = line.get("device", case.given.get("device", 0))
    steps: list[dict[str, Any]] = []
    with engine.memories(case.upstream, line.get("mode", case.mode), device) as world:
        try:
            memory = world.syncedmem(size)
            for i, op in enumerate(line["ops"]):
                steps.append(_step(world, memory, op, i))
            memory.close()
            steps.append({"destroyed": True, "events": world.take_events()})
        except engine.Fatal as fatal:
            steps.append({"fatal": {"file": fatal.file, "message": fatal.message}, "events": world.take_events()})
    return steps


def _step(world: Memories, memory: Any, op: str, i: int) -> dict[str, Any]:
    call, _, argument = op.partition(":")
    if call == "set_mode":
        world.set_mode(argument)
        return {}
    if call == "set_device":
        world.set_device(int(argument))
        return {}
    if call == "fail_next":
        world.fail_next(argument)
        return {}
    returned: dict[str, Any] = {}
    if call in ("set_cpu_data", "set_gpu_data"):
        block = None
        if argument != "null":
            host = call == "set_cpu_data"
            new = world.caller_host if host else world.caller_device
            block = new(np.full(memory.size, (128 if host else 192) + i, np.uint8))
        getattr(memory, call)(block)
    elif call == "async_gpu_push":
        memory.async_gpu_push(world.stream)
    else:
        block = getattr(memory, call)()
        returned = {"ret": world.name(block), "sees": _filling(world, block)}
        if call.startswith("mutable") and block is not None:
            world.write(block, np.full(memory.size, 16 + i, np.uint8))
    return {
        "head": memory.head.name,
        "own": [int(memory.own_cpu_data), int(memory.own_gpu_data)],
        **returned,
        "peek": [_filling(world, block) for block in world.sides(memory)],
        "events": world.take_events(),
    }


def _filling(world: Memories, block: Any) -> Any:
    """The byte that a block is filled with; None if there is no block or it is empty, all bytes if they differ."""
    data = b"" if block is None else world.read(block).tobytes()
    if not data:
        return None
    return data[0] if data == data[:1] * len(data) else list(data)
