"""RMSProp."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.checks import Checker
from refcaffe.kernels.blas import axpby
from refcaffe.side import Side
from refcaffe.solvers.sgd import SGDSolver, single
from refcaffe.solvers.solver import register

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import SolverParameter

_check = Checker("sgd_solvers.hpp")


@register("RMSProp")
class RMSPropSolver(SGDSolver):
    """h = decay * h + (1 - decay) * g²; update = rate * g / (√h + delta). No momentum."""

    def __init__(self, param: SolverParameter | str, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self._refuse_unless(self._check_param)

    def _check_param(self) -> None:
        _check.eq(0, self.param.momentum, "0 == this->param_.momentum()", "Momentum cannot be used with RMSProp.")
        text = "rms_decay should lie between 0 and 1."
        _check.ge(self.param.rms_decay, 0, "this->param_.rms_decay() >= 0", text)
        _check.lt(self.param.rms_decay, 1, "this->param_.rms_decay() < 1", text)

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        real = self.dtype.type
        decay, delta = real(self.param.rms_decay), real(self.param.delta)
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        history = self.history_data(side, index)
        if side.gpu:
            g = single(gradient)
            history *= decay
            history += (1 - decay) * g * g
        else:
            axpby(1 - decay, gradient * gradient, decay, history)
        self.scale_by_root(side, gradient, history, delta, local_rate)
