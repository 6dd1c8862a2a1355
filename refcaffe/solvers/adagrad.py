"""AdaGrad."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.checks import Checker
from refcaffe.side import Side
from refcaffe.solvers.sgd import SGDSolver, single
from refcaffe.solvers.solver import register

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import SolverParameter

_check = Checker("sgd_solvers.hpp")


@register("AdaGrad")
class AdaGradSolver(SGDSolver):
    """h = h + g²; update = rate * g / (√h + delta). No momentum."""

    def __init__(self, param: SolverParameter | str, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        text = "Momentum cannot be used with AdaGrad."
        self._refuse_unless(lambda: _check.eq(0, self.param.momentum, "0 == this->param_.momentum()", text))

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        delta = self.dtype.type(self.param.delta)
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        history = self.history_data(side, index)
        if side.gpu:
            gradient[...] = single(gradient)
        history += gradient * gradient
        self.scale_by_root(side, gradient, history, delta, local_rate)
