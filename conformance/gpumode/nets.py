"""The run ``net``: a whole net, layer by layer."""

from __future__ import annotations

from typing import Any

from conformance.cases import Case, Recording
from conformance.engines.gpumode import Blobs, GpuWorld, Parts
from conformance.gpumode.phases import heads, phase


def play(case: Case, world: GpuWorld) -> Recording:
    """Build the net, then each iteration: inputs from the host, every layer forward, then backward."""
    made: list[Parts] = []
    set_up = phase(world, lambda: made.append(world.net("net.prototxt", case.given["phase"])), dict)
    try:
        run = _Run(case, world, made[0], set_up)
        for number in range(case.given["iterations"]):
            run.iterate(number)
    finally:
        made[0].close()
    return run.got


def write_params(case: Case, world: GpuWorld, params: Blobs) -> None:
    """Write the parameters given (``p:<layer>[<index>]``) from the host."""
    for key, array in case.given_arrays.items():
        if key.startswith("p:"):
            world.write(params[key.removeprefix("p:")], "data", "cpu", array)


class _Run:
    def __init__(self, case: Case, world: GpuWorld, net: Parts, set_up: dict[str, Any]) -> None:
        self.given, self.arrays, self.world, self.net = case.given, case.given_arrays, world, net
        self.all = {**net.blobs, **net.params}
        world.watch(self.all)
        set_up["heads"] = heads(world, self.all)
        write_params(case, world, net.params)
        self.got = Recording({"layers": net.layers, "setup": set_up, "need_backward": net.need_backward})

    def iterate(self, number: int) -> None:
        """One iteration."""
        world, net = self.world, self.net
        for name in self.given["inputs"]:
            world.write(net.blobs[name], "data", "cpu", self.arrays[f"i{number}_{name}"])
        noted: dict[str, Any] = {"before_forward": heads(world, self.all)}
        noted["forward"] = [self._forward(index) for index in range(len(net.layers))]
        self._keep(f"i{number}_data:", net.blobs, "data")
        if "python_reads" in self.given:
            noted["python_reads"] = phase(world, self._read_python, lambda: self._some(self.given["python_reads"]))
        noted["clear_param_diffs"] = phase(world, net.clear_param_diffs, lambda: net.params)
        backward = reversed(range(len(net.layers))) if self.given.get("backward", True) else []
        noted["backward"] = [self._backward(i) for i in backward if net.layers[i][0] in net.need_backward]
        if self.given.get("backward", True):
            self._keep(f"i{number}_diff:", self._some(self.given.get("diffs", [])), "diff")
            self._keep(f"i{number}_pdiff:", net.params, "diff")
        self._keep(f"i{number}_p:", self._some(self.given.get("params_after", [])), "data")
        self.got.values[f"i{number}"] = noted

    def _read_python(self) -> None:
        for name in self.given["python_reads"]:
            self.net.read_python(name)

    def _forward(self, index: int) -> dict[str, Any]:
        losses: list[float] = []
        found = phase(self.world, lambda: losses.append(self.net.forward(index)), lambda: self.net.of_layer(index))
        return {"layer": self.net.layers[index][0], **found, **({"loss": losses[0]} if losses[0] else {})}

    def _backward(self, index: int) -> dict[str, Any]:
        found = phase(self.world, lambda: self.net.backward(index), lambda: self.net.of_layer(index))
        return {"layer": self.net.layers[index][0], **found}

    def _some(self, names: list[str]) -> Blobs:
        return {name: self.all[name] for name in names}

    def _keep(self, prefix: str, blobs: Blobs, which: str) -> None:
        for name, blob in blobs.items():
            contents = self.world.contents(blob, which)
            if contents is not None:
                self.got.arrays[prefix + name] = contents
