"""Nesterov's accelerated gradient."""

from __future__ import annotations

from typing import Any

from refcaffe.kernels.blas import axpby
from refcaffe.side import Side
from refcaffe.solvers.sgd import SGDSolver, single
from refcaffe.solvers.solver import register


@register("Nesterov")
class NesterovSolver(SGDSolver):
    """h = rate * g + momentum * h; update = (1 + momentum) * h - momentum * (h before)."""

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        momentum = self.dtype.type(self.param.momentum)
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        history = self.history_data(side, index)
        before = history.copy()
        if side.gpu:  # one kernel, whose operations are rounded one by one
            before = single(before)
            history[...] = momentum * before + local_rate * gradient
            gradient[...] = (1 + momentum) * single(history) - momentum * before
            return
        axpby(local_rate, gradient, momentum, history)
        gradient[...] = before
        axpby(1 + momentum, history, -momentum, gradient)
