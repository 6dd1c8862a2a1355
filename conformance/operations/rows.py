"""What one call of Step or Solve records, row by row, and the guide that leads it along a recording."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from conformance.engines.pycaffe import SolverPart

FEATURES = ("iter", "current_step", "loss", "smoothed_loss", "lr")
"""What there is one number of in every iteration."""


class RowNames:
    """The names of a recording's arrays: those of FEATURES, and ``grad/0`` …, ``param/0`` …, ``history/0`` …"""

    def __init__(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        self.name = name
        self.arrays = {
            key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")
        }

    def many(self, what: str) -> list[np.ndarray]:
        """``what/0``, ``what/1`` …, as many as there are."""
        found: list[np.ndarray] = []
        while f"{what}/{len(found)}" in self.arrays:
            found.append(self.arrays[f"{what}/{len(found)}"])
        return found

    def iterations(self, what: str = "grad") -> list[int]:
        """The iterations that the rows of ``what`` are about."""
        sparse = what in ("param", "history") and "param_iter" in self.arrays
        return self.arrays["param_iter" if sparse else "iter"].tolist()


class Guide:
    """Leads a run along recorded rows: gradients and rate of every iteration, parameters and history after it."""

    def __init__(self, recorded: RowNames) -> None:
        self.lr = recorded.arrays["lr"]
        self.current_step = recorded.arrays["current_step"]
        self.gradients = recorded.many("grad")
        self.state = recorded.many("param"), recorded.many("history")
        states = {iteration: row for row, iteration in enumerate(recorded.iterations("param"))}
        self._state_of = [states.get(iteration) for iteration in recorded.iterations()]

    @property
    def complete(self) -> bool:
        """Whether it leads all the way: then the run's parameters are the recorded ones after every iteration."""
        return bool(self.gradients or not self._state_of) and None not in self._state_of

    def rate(self, row: int, own: Any) -> Any:
        """The rate for the update of a row."""
        return self.lr[row] if row < len(self.lr) else own

    def give_gradients(self, row: int, solver: SolverPart) -> None:
        """Replace the solver's gradients by the row's, if it has any."""
        if row < len(self.lr):
            for blob, gradient in zip(solver.learnable, self.gradients):
                blob.diff[...] = gradient[row]

    def give_state(self, row: int, solver: SolverPart) -> None:
        """Replace the solver's state by the one after the row, if it was recorded."""
        state = self._state_of[row] if row < len(self._state_of) else None
        if state is None:
            return
        for blobs, arrays in zip((solver.learnable, solver.history), self.state):
            for blob, array in zip(blobs, arrays):
                blob.data[...] = array[state]
        solver.current_step = int(self.current_step[row])


class Rows:
    """Records one call: ``on_gradients``, ``on_rate`` and ``on_updated`` are called in every iteration."""

    def __init__(self, solver: SolverPart, op: dict[str, Any], guide: Guide | None) -> None:
        self.solver = solver
        self.every = op.get("every", 1)
        self.with_gradients = op.get("grads", True)
        self.guide = guide
        self.features: dict[str, list[Any]] = {name: [] for name in FEATURES}
        self.param_iter: list[int] = []
        self.many: dict[str, list[list[np.ndarray]]] = {}
        self.moved: set[int] = set()  # parameters that a forward pass changed
        self.initial = [blob.data.copy() for blob in solver.learnable]
        self._known = self.initial

    @property
    def row(self) -> int:
        return len(self.features["iter"]) - 1

    def on_gradients(self) -> None:
        solver = self.solver
        self.features["iter"].append(solver.iter)
        self.features["loss"].append(solver.losses[self.row % len(solver.losses)])
        self.features["smoothed_loss"].append(solver.smoothed_loss)
        if self.with_gradients:
            self._append("grad", [blob.diff for blob in solver.learnable])
        self.moved |= {
            k
            for k, (blob, known) in enumerate(zip(solver.learnable, self._known))
            if not np.array_equal(blob.data.view(np.uint32), known.view(np.uint32))
        }
        if self.guide:
            self.guide.give_gradients(self.row, solver)

    def on_rate(self, rate: Any) -> Any:
        self.features["lr"].append(rate)
        return self.guide.rate(self.row, rate) if self.guide else rate

    def on_updated(self) -> None:
        solver = self.solver
        self.features["current_step"].append(solver.current_step)
        if self.features["iter"][-1] % self.every == 0:
            self.param_iter.append(self.features["iter"][-1])
            self._append("param", [blob.data for blob in solver.learnable])
            self._append("history", [blob.data for blob in solver.history])
        if self.guide:
            self.guide.give_state(self.row, solver)
        self._known = [blob.data.copy() for blob in solver.learnable]

    def _append(self, what: str, arrays: list[Any]) -> None:
        rows = self.many.setdefault(what, [[] for _ in arrays])
        for column, array in zip(rows, arrays):
            column.append(np.array(array))

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays by the names of FORMAT-solver.md."""
        whole = ("iter", "current_step")
        found = {
            name: np.array(values, np.int32 if name in whole else np.float32) for name, values in self.features.items()
        }
        for what in ("grad", "param", "history"):
            for k, column in enumerate(self.many.get(what, ())):
                found[f"{what}/{k}"] = np.stack(column)
        if self.every > 1:
            found["param_iter"] = np.array(self.param_iter, np.int32)
        return found
