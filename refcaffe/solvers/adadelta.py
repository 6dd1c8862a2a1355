"""AdaDelta."""

from __future__ import annotations

from typing import Any

from refcaffe.kernels.blas import axpby, scal
from refcaffe.side import Side
from refcaffe.solvers.sgd import SGDSolver, single
from refcaffe.solvers.solver import register


@register("AdaDelta")
class AdaDeltaSolver(SGDSolver):
    """h = m * h + (1 - m) * g²; u = g * √((delta + k) / (delta + h)); k = m * k + (1 - m) * u²; update = rate * u.

    The first half of ``history`` holds h, the second k.
    """

    histories_per_param = 2

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        real, xp = self.dtype.type, side.xp
        momentum, delta = real(self.param.momentum), real(self.param.delta)
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        squares = self.history_data(side, index)
        updates = self.history_data(side, index + len(self.net.parameters.learnable))

        def blend(history: Any, value: Any) -> None:
            if side.gpu:
                history *= momentum
                history += (1 - momentum) * single(value) * single(value)
            else:
                axpby(1 - momentum, value * value, momentum, history)

        blend(squares, gradient)
        held = single(squares) if side.gpu else squares
        gradient *= xp.sqrt((updates + delta) / (held + delta))
        blend(updates, gradient)
        scal(local_rate, gradient)
