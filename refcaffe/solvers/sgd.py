"""Stochastic gradient descent with momentum, and what all gradient solvers share."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError, shown
from refcaffe.context import Mode
from refcaffe.kernels.blas import axpby, axpy, scal
from refcaffe.kernels.parallel import copy
from refcaffe.proto import caffe_pb2
from refcaffe.side import DEVICE, HOST, Side
from refcaffe.solvers import snapshot
from refcaffe.solvers.policies import learning_rate
from refcaffe.solvers.solver import Solver, register

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import SolverParameter

_check = Checker("sgd_solver.cpp")
_log = logging.getLogger("refcaffe.sgd_solver.cpp")


def single(array: Any) -> Any:
    """Devices hold intermediate results of an update in single precision, in nets of doubles too."""
    return array.astype(np.float32, copy=False)


@register("SGD")
class SGDSolver(Solver):
    """history = rate * gradient + momentum * history; update = history.

    ``history`` holds one blob per learnable parameter, or more for a type that says so.
    """

    histories_per_param = 1

    def __init__(self, param: SolverParameter | str, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.history: list[Blob] = []
        for _ in range(self.histories_per_param):
            self.history += [Blob(blob.shape, self.dtype) for blob in self.net.parameters.learnable]

    def learning_rate(self) -> Any:
        return learning_rate(self)

    def apply_update(self) -> None:
        self.rate = rate = self.learning_rate()
        if self.param.display and self.iter % self.param.display == 0 and context.current().root_solver:
            _log.info("Iteration %d, lr = %s", self.iter, shown(rate))
        self._clip_gradients()
        side = DEVICE if context.current().mode is Mode.GPU else HOST
        for index in range(len(self.net.parameters.learnable)):
            self._normalize(side, index)
            self._regularize(side, index)
            local_rate = self.dtype.type(rate * self.dtype.type(self.net.parameters.lr[index]))
            self.compute_update_value(side, index, local_rate)
        self.net.update()
        self.iter += 1

    def compute_update_value(self, side: Side, index: int, local_rate: Any) -> None:
        """Turn the gradient of learnable parameter ``index`` into its update, in place, and move its history."""
        gradient = side.mutable_diff(self.net.parameters.learnable[index])
        history = self.history_data(side, index)
        momentum = self.dtype.type(self.param.momentum)
        if side.gpu:  # one kernel, whose operations are rounded one by one
            history *= momentum
            history += local_rate * gradient
            gradient[...] = history
        else:
            axpby(local_rate, gradient, momentum, history)
            copy(history, gradient)

    def history_data(self, side: Side, index: int) -> Any:
        """The data of a history blob to write, shaped like its parameter: in old state files all have four axes."""
        return side.mutable_data(self.history[index]).reshape(self.parameter_of(index).shape)

    def parameter_of(self, index: int) -> Blob:
        """The learnable parameter that history blob ``index`` belongs to."""
        learnable = self.net.parameters.learnable
        return learnable[index % len(learnable)]

    def scale_by_root(self, side: Side, gradient: Any, history: Any, delta: Any, local_rate: Any) -> None:
        """gradient = local_rate * (gradient / (√history + delta)); on a device the product comes first."""
        if side.gpu:
            gradient *= local_rate
            gradient /= side.xp.sqrt(single(history)) + delta
        else:
            gradient /= side.xp.sqrt(history) + delta
            scal(local_rate, gradient)

    def _refuse_unless(self, check: Callable[[], None]) -> None:
        """Run a type's own check of its parameters; the nets are closed if it fails."""
        try:
            check()
        except CheckError:
            self.close()
            raise

    def _clip_gradients(self) -> None:
        """Scale all gradients down if their common L2 norm is above ``clip_gradients``."""
        limit = self.dtype.type(self.param.clip_gradients)
        if limit < 0:
            return
        learnable = self.net.parameters.learnable
        total = self.dtype.type(0)
        for blob in learnable:
            total += self.dtype.type(blob.sumsq_diff())
        norm = np.sqrt(total)
        if norm > limit:
            factor = limit / norm
            text = "Gradient clipping: scaling down gradients (L2 norm %s > %s) by scale factor %s"
            _log.info(text, shown(norm), shown(limit), shown(factor))
            for blob in learnable:
                blob.scale_diff(factor)

    def _normalize(self, side: Side, index: int) -> None:
        """Make the sum over ``iter_size`` passes a mean."""
        if self.param.iter_size != 1:
            diff = side.mutable_diff(self.net.parameters.learnable[index])
            scal(self.dtype.type(1) / self.dtype.type(self.param.iter_size), diff)

    def _regularize(self, side: Side, index: int) -> None:
        """Add the weight decay."""
        parameters, real = self.net.parameters, self.dtype.type
        decay = real(self.param.weight_decay) * real(parameters.decay[index])
        if not decay:
            return
        kind = self.param.regularization_type
        if kind not in ("L1", "L2"):
            _check.fatal(f"Unknown regularization type: {kind}")
        blob = parameters.learnable[index]
        data = side.data(blob)
        diff = side.mutable_diff(blob)
        axpy(decay, data if kind == "L2" else side.xp.sign(data), diff)

    def snapshot(self) -> None:
        _check(context.current().root_solver, "Caffe::root_solver()")
        snapshot.write(self)
        ending = ".solverstate.h5" if self.param.snapshot_format == caffe_pb2.SolverParameter.HDF5 else ".solverstate"
        self.tell("snapshot", file=self.snapshot_filename(ending))

    def restore(self, path: str) -> None:
        snapshot.restore(self, path)
