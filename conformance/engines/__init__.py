"""Engines: what cases run on. ``Engine`` says what a runner may ask for."""

from __future__ import annotations

from pathlib import Path

from conformance.engines.base import Engine, EngineError

__all__ = ["DEVICES", "ENGINES", "RECORDINGS", "Engine", "EngineError", "make_engine"]

ENGINES = ("refcaffe",)
RECORDINGS = "recordings:"
"""How the name of an engine begins that gives what the folder behind it holds."""
DEVICES = ("cpu", "fake", "cuda")


def make_engine(name: str, device: str) -> Engine:
    """An engine by name, on a device. What it needs is imported now; raises EngineError if it is not there."""
    if name.startswith(RECORDINGS):
        from conformance.engines.recordings import RecordingsEngine

        return RecordingsEngine(Path(name.removeprefix(RECORDINGS)))
    if name != "refcaffe":
        raise EngineError(f"unknown engine {name!r}: one of {', '.join(ENGINES)}")
    from conformance.engines.refcaffe_engine import RefcaffeEngine

    return RefcaffeEngine(device)
