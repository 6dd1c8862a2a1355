"""Solvers: the training loop, learning-rate policies, one file per update rule, snapshots."""

from refcaffe.solvers.adadelta import AdaDeltaSolver
from refcaffe.solvers.adagrad import AdaGradSolver
from refcaffe.solvers.adam import AdamSolver
from refcaffe.solvers.nesterov import NesterovSolver
from refcaffe.solvers.rmsprop import RMSPropSolver
from refcaffe.solvers.sgd import SGDSolver
from refcaffe.solvers.solver import Solver, SolverAction, create, register

__all__ = [
    "AdaDeltaSolver", "AdaGradSolver", "AdamSolver", "NesterovSolver", "RMSPropSolver", "SGDSolver", "Solver",
    "SolverAction", "create", "register",
]  # fmt: skip
