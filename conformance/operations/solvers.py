"""Operations on solvers (FORMAT-solver.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.compare import blas_bound
from conformance.operations.rows import Guide, RowNames, Rows

if TYPE_CHECKING:
    from conformance.engines.pycaffe import NetPart, SolverPart
    from conformance.operations.world import Operation, World

Op = dict[str, Any]

_PY_PARAM = ("max_iter", "display", "base_lr", "layer_wise_reduce")


def _solver(world: World, op: Op) -> None:
    solver = world.caffe.solver(op["file"], op.get("class"))
    world.solvers[op.get("as", "solver")] = solver
    _feed(world, solver.net, op.get("feed", {}), op.get("feed_from", 0))
    for net, feed in zip(solver.test_nets, op.get("test_feed", ())):
        _feed(world, net, feed, 0)


def _feed(world: World, net: NetPart, feed: dict[str, str], passes: int) -> None:
    """Before each pass write the given array's next entry into the net's blobs."""
    if not feed:
        return
    arrays = {blob: world.array(name) for blob, name in feed.items()}

    def write() -> None:
        nonlocal passes
        for blob, array in arrays.items():
            net.blobs[blob].data[...] = array[passes % len(array)]
        passes += 1

    net.before_pass(write)


def _train(world: World, op: Op, train: Callable[[SolverPart], None]) -> None:
    """Record what happens while ``train`` runs; in a guided world lead it along the recording of the same name.

    In a shaken one the limit that clips gradients is as far off as BLAS may be with the norm that it is compared to.
    """
    solver, name = world.solver(op), op["as"]
    guide = Guide(RowNames(name, world.case.recorded.arrays)) if world.guided else None
    if world.shaken:
        solver.clip_gradients *= 1 + float(blas_bound(sum(blob.count for blob in solver.learnable), 1.0))
    rows = Rows(solver, op, guide)
    with solver.watch(rows.on_gradients, rows.on_rate, rows.on_updated):
        train(solver)
    world.exact &= guide is not None and guide.complete
    for key, array in rows.arrays().items():
        world.put(f"{name}/{key}", array)
    world.note("moved", name, sorted(rows.moved))
    for k, array in enumerate(rows.initial):
        world.got.values.setdefault("initial", {})[f"{name}/{k}"] = array
    world.got.values["clips"] = world.got.values.get("clips", False) or solver.clip_gradients >= 0
    _state(world, op)


def _step(world: World, op: Op) -> None:
    _train(world, op, lambda solver: solver.step(op["n"]))


def _solve(world: World, op: Op) -> None:
    _train(world, op, lambda solver: solver.solve(op.get("resume")))


def _plain_step(world: World, op: Op) -> None:
    world.solver(op).step(op["n"])
    world.exact = False


def _apply_update(world: World, op: Op) -> None:
    world.solver(op).apply_update()
    world.exact = False


def _snapshot(world: World, op: Op) -> None:
    world.solver(op).snapshot()


def _restore(world: World, op: Op) -> None:
    world.solver(op).restore(op["file"])


def _lr(world: World, op: Op) -> None:
    world.note("lr", op["as"], float(world.solver(op).lr))


def _state(world: World, op: Op) -> None:
    solver = world.solver(op)
    state: dict[str, Any] = {"type": solver.type, "iter": solver.iter, "current_step": solver.current_step}
    if solver.smoothed_loss is not None:
        state["smoothed_loss"] = float(solver.smoothed_loss)
    state["losses"] = [float(loss) for loss in solver.losses]
    state["requested_early_exit"] = bool(solver.requested_early_exit)
    state["num_test_nets"] = len(solver.test_nets)
    world.note("solver_state", op["as"], state)


def _solver_dump(world: World, op: Op) -> None:
    solver = world.solver(op)
    world.put_blobs(f"{op['as']}/param", solver.learnable)
    if op.get("diff"):
        world.put_blobs(f"{op['as']}/diff", solver.learnable, "diff")
    world.put_blobs(f"{op['as']}/history", solver.history)


def _solver_param(world: World, op: Op) -> None:
    world.note("solver_param", op["as"], world.solver(op).param_text())


def _py_param(world: World, op: Op) -> None:
    param = world.solver(op).param()
    world.note("py_param", op["as"], {name: getattr(param, name) for name in _PY_PARAM})


def _set_base_lr(world: World, op: Op) -> None:
    world.solver(op).param().base_lr = op["value"]


def _share_weights(world: World, op: Op) -> None:
    world.solver(op).share_weights(world.net(op))


def _actions(world: World, op: Op) -> None:
    answers = iter(op["list"])
    world.solver(op).set_actions(lambda: next(answers, "none"))


def _compare(world: World, op: Op) -> None:
    a, b = (RowNames(op[side], world.got.arrays) for side in "ab")
    shared = [iteration for iteration in a.iterations() if iteration in b.iterations()]
    different = [name for name in a.arrays if name in b.arrays and _differ(a, b, name, shared)]
    world.note("compare", op["as"], {"iterations": shared, "bitwise": not different, "different": different})


def _differ(a: RowNames, b: RowNames, name: str, shared: list[int]) -> bool:
    """Whether two recordings differ in an array, on the iterations that both have of it."""
    if name in ("iter", "param_iter"):
        return False
    what = name.partition("/")[0]
    there = [iteration for iteration in shared if iteration in a.iterations(what) and iteration in b.iterations(what)]
    rows = [side.arrays[name][[side.iterations(what).index(i) for i in there]] for side in (a, b)]
    return bool(np.any(rows[0].view(np.uint32) != rows[1].view(np.uint32)))


OPERATIONS: dict[str, Operation] = {
    "solver": _solver,
    "step": _step,
    "solve": _solve,
    "plain_step": _plain_step,
    "apply_update": _apply_update,
    "snapshot": _snapshot,
    "restore": _restore,
    "lr": _lr,
    "solver_state": _state,
    "solver_dump": _solver_dump,
    "solver_param": _solver_param,
    "py_param": _py_param,
    "set_base_lr": _set_base_lr,
    "share_weights": _share_weights,
    "actions": _actions,
    "compare": _compare,
}
