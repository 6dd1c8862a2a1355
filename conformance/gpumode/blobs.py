"""The run ``blob``: operations on blobs by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.engines.gpumode import GpuWorld
from conformance.gpumode.phases import phase

_SAME_NAME = {
    "ShareData": "share_data",
    "ShareDiff": "share_diff",
    "CopyFrom": "copy_from",
    "ReshapeLike": "reshape_like",
}


def play(case: Case, world: GpuWorld) -> Recording:
    """Carry out the operations given; each gives one phase."""
    run = _Run(world, {name: world.blob(shape) for name, shape in case.given["blobs"].items()})
    got = Recording({"steps": [run.operation(*op) for op in case.given["ops"]]})
    for name, blob in run.blobs.items():
        for which in ("data", "diff"):
            contents = world.contents(blob, which)
            if contents is not None:
                got.arrays[f"{name}_{which}"] = contents
    return got


class _Run:
    def __init__(self, world: GpuWorld, blobs: dict[str, Any]) -> None:
        self.world, self.blobs = world, blobs
        world.watch(blobs)

    def operation(self, first: str, call: str, *arguments: Any) -> dict[str, Any]:
        """One entry of ``given.ops``."""
        values: list[Any] = []

        def act() -> None:
            if first == "mode":
                self.world.set_mode(call)
            else:
                values.append(self._call(self.blobs[first], call, arguments))

        found = phase(self.world, act, lambda: self.blobs)
        given = [value for value in values if value is not None]
        return found | ({"value": given[0]} if given else {})

    def _call(self, blob: Any, call: str, arguments: tuple[Any, ...]) -> Any:
        if call.startswith(("asum", "sumsq")):
            return float(getattr(blob, call)())
        if call.startswith("scale"):
            getattr(blob, call)(*arguments)
        elif call.startswith("fill"):
            self._fill(blob, call, *arguments)
        elif call in _SAME_NAME:
            getattr(blob, _SAME_NAME[call])(self.blobs[arguments[0]])
        elif call in _OTHERS:
            _OTHERS[call](self, blob, *arguments)
        elif hasattr(blob, call):
            getattr(blob, call)()  # an accessor; what it returns is not recorded
        else:
            raise CaseError(f"{call!r} is no operation on a blob")
        return None

    def _fill(self, blob: Any, call: str, start: float, step: float) -> None:
        _, side, *diff = call.split("_")
        values = start + step * np.arange(blob.count)
        which = "diff" if diff else "data"
        self.world.write(blob, which, side, values.astype(np.float32).reshape(blob.shape))

    def _to_proto(self, blob: Any, write_diff: bool) -> None:
        blob.to_proto(self.world.blob_proto(), write_diff)

    def _from_proto(self, blob: Any, values: list[float]) -> None:
        proto = self.world.blob_proto()
        proto.shape.dim.extend(blob.shape)
        proto.data.extend(values)
        blob.from_proto(proto)

    def _set(self, blob: Any, side: str, values: list[float]) -> None:
        getattr(blob, f"set_{side}_data")(self.world.external(side, values))

    def _set_of(self, blob: Any, side: str, other: str) -> None:
        memory = self.blobs[other].data_memory()
        getattr(blob, f"set_{side}_data")(getattr(memory, f"mutable_{side}_data")())


_OTHERS: dict[str, Callable[..., None]] = {
    "CopyFrom_diff": lambda run, blob, other: blob.copy_from(run.blobs[other], True),
    "CopyFrom_reshape": lambda run, blob, other: blob.copy_from(run.blobs[other], False, True),
    "Reshape": lambda run, blob, shape: blob.reshape(shape),
    "Update": lambda run, blob: blob.update(),
    "ToProto": lambda run, blob: run._to_proto(blob, False),
    "ToProto_diff": lambda run, blob: run._to_proto(blob, True),
    "FromProto": lambda run, blob, values: run._from_proto(blob, values),
    "async_gpu_push": lambda run, blob: run.world.async_push(blob),
    "set_cpu_data": lambda run, blob, values: run._set(blob, "cpu", values),
    "set_gpu_data": lambda run, blob, values: run._set(blob, "gpu", values),
    "set_cpu_data_of": lambda run, blob, other: run._set_of(blob, "cpu", other),
    "set_gpu_data_of": lambda run, blob, other: run._set_of(blob, "gpu", other),
}
