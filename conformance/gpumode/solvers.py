"""The run ``solver``: training, one iteration at a time."""

from __future__ import annotations

from typing import Any

from conformance.cases import Case, CaseError, Recording
from conformance.engines.gpumode import GpuWorld, SolverPart
from conformance.gpumode.nets import write_params
from conformance.gpumode.phases import heads, noted, phase


def play(case: Case, world: GpuWorld) -> Recording:
    """Carry out the steps given."""
    solver = world.solver("solver.prototxt")
    try:
        run = _Run(case, world, solver)
        steps = [run.step(step) for step in case.given["steps"]]
    finally:
        solver.close()
    run.got.values["steps"] = steps
    return run.got


class _Run:
    def __init__(self, case: Case, world: GpuWorld, solver: SolverPart) -> None:
        self.given, self.arrays, self.world, self.solver = case.given, case.given_arrays, world, solver
        history = {f"history{i}": blob for i, blob in enumerate(solver.history)}
        self.shown = {**solver.net.params, **history}
        tested = {f"test{i}:{name}": blob for i, net in enumerate(solver.test_nets) for name, blob in net.blobs.items()}
        world.watch({**solver.net.blobs, **self.shown, **tested})
        write_params(case, world, solver.net.params)
        self.history = history
        self.iteration = 0
        self.got = Recording({"history": [list(blob.shape) for blob in solver.history]})

    def step(self, step: list[Any]) -> dict[str, Any]:
        """One entry of ``given.steps``."""
        operation, *arguments = step
        if operation == "step":
            found = self._train()
        elif operation in ("snapshot", "restore"):
            action = getattr(self.solver, operation)
            found = {operation: phase(self.world, lambda: action(*arguments), lambda: self.shown)}
        else:
            raise CaseError(f"{operation!r} is no step of a solver")
        for name, blob in self.history.items():
            contents = self.world.contents(blob, "data")
            if contents is not None:
                self.got.arrays[name] = contents
        return {"op": step, **found}

    def _train(self) -> dict[str, Any]:
        world, net, number = self.world, self.solver.net, self.iteration
        for name in self.given["inputs"]:
            world.write(net.blobs[name], "data", "cpu", self.arrays[f"it{number}_{name}"])
            for test_net in self.solver.test_nets:
                world.write(test_net.blobs[name], "data", "cpu", self.arrays[f"test_{name}"])
        world.take_copies()
        found: dict[str, Any] = {"before": {"heads": heads(world, self.shown)}}

        def end(name: str) -> None:
            found[name] = noted(world, self.shown)

        self.solver.step(lambda: end("clear_and_test"), lambda: end("forward_backward"))
        end("update")
        loss = world.contents(net.blobs[self.given["loss"]], "data")
        found["loss_blob"] = None if loss is None else float(loss.reshape(-1)[0])
        for name, blob in net.params.items():
            self.got.arrays[f"it{number}_p:{name}"] = world.contents(blob, "data")  # type: ignore[assignment]
        self.iteration += 1
        return found
