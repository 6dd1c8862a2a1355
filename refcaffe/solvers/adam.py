"""Adam."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels.blas import axpby, scal
from refcaffe.side import Side
from refcaffe.solvers.sgd import SGDSolver, single
from refcaffe.solvers.solver import register


@register("Adam")
class AdamSolver(SGDSolver):
    """m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g²; update = rate * c * m / (√v + delta), t = iteration + 1,

    c = √(1 - b2^t) / (1 - b1^t). The first half of ``history`` holds m, the second v; b1 is ``momentum``.
    """

    histories_per_param = 2

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        real, xp = self.dtype.type, side.xp
        b1, b2, delta = real(self.param.momentum), real(self.param.momentum2), real(self.param.delta)
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        mean = self.history_data(side, index)
        variance = self.history_data(side, index + len(self.net.parameters.learnable))
        # The powers are taken in double precision, of single precision numbers.
        t = self.iter + 1
        correction = real(np.sqrt(1 - np.float64(b2) ** t) / (1 - np.float64(b1) ** t))
        rate = local_rate * correction
        if side.gpu:
            g = single(gradient)
            mean *= b1
            mean += g * (1 - b1)
            variance *= b2
            variance += g * g * (1 - b2)
            xp.divide(rate * single(mean), xp.sqrt(single(variance)) + delta, out=gradient)
        else:
            axpby(1 - b1, gradient, b1, mean)
            axpby(1 - b2, gradient * gradient, b2, variance)
            xp.divide(mean, xp.sqrt(variance) + delta, out=gradient)
            scal(rate, gradient)
