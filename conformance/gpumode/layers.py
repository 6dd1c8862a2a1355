"""The run ``layer``: one layer by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.cases import Case, Recording
from conformance.engines.gpumode import GpuWorld, LayerPart
from conformance.gpumode.phases import heads, phase


def play(case: Case, world: GpuWorld) -> Recording:
    """Set up, then each iteration forward and backward: inputs from the host in the first, on the device afterwards."""
    layer = world.layer(Path("layer.prototxt").read_text(encoding="utf-8"), case.given["phase"])
    try:
        run = _Run(case, world, layer)
        for number in range(case.given.get("iterations", 2)):
            run.iterate(number)
    finally:
        layer.close()
    return run.got


class _Run:
    def __init__(self, case: Case, world: GpuWorld, layer: LayerPart) -> None:
        self.given, self.arrays, self.world, self.layer = case.given, case.given_arrays, world, layer
        self.bottoms = [world.blob(shape) for shape in self.given["bottoms"]]
        shared = self.bottoms[:1] if self.given.get("in_place") else []
        self.tops = shared + [world.blob(None) for _ in range(self.given["tops"] - len(shared))]
        self.blobs = {f"bottom{i}": blob for i, blob in enumerate(self.bottoms)}
        self.blobs |= {f"top{i}": blob for i, blob in enumerate(self.tops) if blob not in shared}
        world.watch(self.blobs)
        self._write("bottom", self.bottoms, "data", "cpu")
        set_up = phase(world, lambda: layer.set_up(self.bottoms, self.tops), lambda: self.blobs)
        self.params = list(layer.params)
        self.blobs |= {f"param{i}": blob for i, blob in enumerate(self.params)}
        world.watch(self.blobs)
        set_up["heads"] = heads(world, self.blobs)
        self._write("param", self.params, "data", "cpu")
        if "mem_data" in self.arrays:
            layer.reset(self.arrays["mem_data"], self.arrays["mem_labels"])
        values = {
            "type": layer.type,
            "setup": set_up,
            "falls_back": layer.falls_back,
            "tops": [list(blob.shape) for blob in self.tops],
        }
        if self.params:
            values["params"] = [list(blob.shape) for blob in self.params]
        self.got = Recording(values)

    def iterate(self, number: int) -> None:
        """One iteration."""
        world, layer, side = self.world, self.layer, "gpu" if number else "cpu"
        self._write("bottom", self.bottoms, "data", side)
        before = [world.contents(blob, "data") for blob in self.params]
        noted: dict[str, Any] = {"before_forward": heads(world, self.blobs)}
        losses: list[float] = []
        noted["forward"] = phase(
            world, lambda: losses.append(float(layer.forward(self.bottoms, self.tops))), lambda: self.blobs
        )
        if layer.has_loss(len(self.tops)):
            noted["loss"] = losses[0]
        self._keep(f"i{number}_top", self.tops, "data")
        for i, blob in enumerate(self.params):
            contents = world.contents(blob, "data")
            if contents is not None and contents.tobytes() != before[i].tobytes():  # type: ignore[union-attr]
                self.got.arrays[f"i{number}_param{i}"] = contents
        if self.given.get("backward", True):
            self._backward(number, side, noted)
        self.got.values[f"i{number}"] = noted

    def _backward(self, number: int, side: str, noted: dict[str, Any]) -> None:
        world, wanted = self.world, self.given["propagate_down"]
        self._write("top", self.tops, "diff", side)
        for blob in self.params:
            world.clear_on_device(blob)
        noted["before_backward"] = heads(world, self.blobs)
        noted["backward"] = phase(
            world, lambda: self.layer.backward(self.tops, wanted, self.bottoms), lambda: self.blobs
        )
        for i, blob in enumerate(self.bottoms):
            if wanted[i]:
                self._keep(f"i{number}_bottom{i}_diff", [blob], "diff", "")
        for i, blob in enumerate(self.params):
            self._keep(f"i{number}_param{i}_diff", [blob], "diff", "")

    def _write(self, name: str, blobs: list[Any], which: str, side: str) -> None:
        for i, blob in enumerate(blobs):
            key = f"{name}{i}" if which == "data" else f"{name}{i}_diff"
            if key in self.arrays:
                self.world.write(blob, which, side, self.arrays[key])

    def _keep(self, name: str, blobs: list[Any], which: str, number: str = "{}") -> None:
        for i, blob in enumerate(blobs):
            contents = self.world.contents(blob, which)
            if contents is not None:
                self.got.arrays[name + number.format(i)] = contents
