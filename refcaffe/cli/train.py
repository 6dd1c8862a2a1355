"""``refcaffe train``: train or finetune a model."""

from __future__ import annotations

from refcaffe import context
from refcaffe.cli.brew import check, gpus, log, set_device
from refcaffe.cli.flags import Flags
from refcaffe.cli.progress import training_progress
from refcaffe.cli.signals import SignalActions
from refcaffe.context import Mode
from refcaffe.proto import caffe_pb2
from refcaffe.solvers import create
from refcaffe.solvers.read import read_solver_param


def run(flags: Flags) -> int:
    """Train as the solver file says. SIGINT and SIGHUP do what their flags say; returns the exit status."""
    check.gt(len(flags.solver), 0, "FLAGS_solver.size() > 0", "Need a solver definition to train.")
    text = "Give a snapshot to resume training or weights to finetune but not both."
    check(not (flags.snapshot and flags.weights), "!FLAGS_snapshot.size() || !FLAGS_weights.size()", text)
    param = read_solver_param(flags.solver)
    param.train_state.level = flags.level
    param.train_state.stage.extend(flags.stages)
    if not flags.gpu and param.HasField("solver_mode") and param.solver_mode == caffe_pb2.SolverParameter.GPU:
        flags.gpu = str(param.device_id)
    numbers = gpus(flags)
    if numbers:
        log.info("Using GPUs %s", ", ".join(map(str, numbers)))
        param.device_id = numbers[0]
        set_device(numbers[0])
        context.current().solver_count = len(numbers)
    else:
        log.info("Use CPU.")
        context.current().mode = Mode.CPU
    with SignalActions(flags.sigint_effect, flags.sighup_effect) as actions:
        if flags.snapshot:
            param.ClearField("weights")
        elif flags.weights:
            del param.weights[:]
            param.weights.append(flags.weights)
        with create(param) as solver:
            solver.set_action_function(actions.requested)
            if flags.snapshot:
                log.info("Resuming from %s", flags.snapshot)
                solver.restore(flags.snapshot)
            log.info("Starting Optimization")
            if len(numbers) > 1:
                check.fatal("Multi-GPU execution not available - rebuild with USE_NCCL")
            with training_progress(solver):
                solver.solve()
    log.info("Optimization Done.")
    return 0
