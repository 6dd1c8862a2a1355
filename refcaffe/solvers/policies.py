"""Learning rates by policy. Powers and exponentials are libm's of the precision upstream uses."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from refcaffe.checks import Checker

if TYPE_CHECKING:
    from refcaffe.solvers.sgd import SGDSolver

_check = Checker("sgd_solver.cpp")
_log = logging.getLogger("refcaffe.sgd_solver.cpp")


def _power(base: Any, exponent: Any) -> float:
    """pow as C has it: a negative base gives NaN, an overflow infinity."""
    with np.errstate(all="ignore"):
        return float(np.power(np.float64(base), np.float64(exponent)))


def _check_gamma(solver: SGDSolver) -> np.float32:
    _check.ge(solver.param.gamma, 0, "this->param_.gamma() >= 0")
    return np.float32(solver.param.gamma)


def _fixed(solver: SGDSolver) -> Any:
    return solver.param.base_lr


def _step(solver: SGDSolver) -> Any:
    _check.gt(solver.param.stepsize, 0, "this->param_.stepsize() > 0")
    solver.current_step = solver.iter // solver.param.stepsize
    return solver.param.base_lr * _power(_check_gamma(solver), solver.current_step)


def _exp(solver: SGDSolver) -> Any:
    return solver.param.base_lr * _power(_check_gamma(solver), solver.iter)


def _inv(solver: SGDSolver) -> Any:
    real = solver.dtype.type
    base = real(1) + real(_check_gamma(solver) * np.float32(solver.iter))
    return real(solver.param.base_lr) * real(_power(base, -solver.param.power))


def _multistep(solver: SGDSolver) -> Any:
    values = solver.param.stepvalue
    text = "No solver has taken such a number of steps: is the state that was restored one?"
    _check.ge(solver.current_step, 0, "current_step_ >= 0", text)
    if solver.current_step < len(values) and solver.iter >= values[solver.current_step]:
        solver.current_step += 1
        _log.info("MultiStep Status: Iteration %d, step = %d", solver.iter, solver.current_step)
    return solver.param.base_lr * _power(_check_gamma(solver), solver.current_step)


def _poly(solver: SGDSolver) -> Any:
    real = solver.dtype.type
    with np.errstate(all="ignore"):
        left = real(1) - real(solver.iter) / real(solver.param.max_iter)
    return real(solver.param.base_lr) * real(_power(left, solver.param.power))


def _sigmoid(solver: SGDSolver) -> Any:
    real = solver.dtype.type
    gamma = real(_check_gamma(solver))
    _check.gt(solver.param.stepsize, 0, "this->param_.stepsize() > 0")
    exponent = -gamma * (real(solver.iter) - real(solver.param.stepsize))
    try:
        grown = real(math.exp(exponent))
    except OverflowError:
        grown = real(np.inf)
    return real(solver.param.base_lr) * (real(1) / (real(1) + grown))


POLICIES: dict[str, Callable[[SGDSolver], Any]] = {
    "fixed": _fixed, "step": _step, "exp": _exp, "inv": _inv, "multistep": _multistep, "poly": _poly,
    "sigmoid": _sigmoid,
}  # fmt: skip


def learning_rate(solver: SGDSolver) -> Any:
    """The rate of the solver's present iteration, in the solver's precision; may move its ``current_step``."""
    policy = POLICIES.get(solver.param.lr_policy)
    if policy is None:
        _check.fatal(f"Unknown learning rate policy: {solver.param.lr_policy}")
    return solver.dtype.type(policy(solver))
