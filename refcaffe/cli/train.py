"""``refcaffe train``: train or finetune a model."""

from __future__ import annotations

from contextlib import ExitStack

from refcaffe import context
from refcaffe.cli.brew import check, gpus, log, log_names, set_device
from refcaffe.cli.flags import Flags
from refcaffe.cli.json_log import JsonLog
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
        log_names("GPU {}: {}", *numbers)
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
        with ExitStack() as stack:
            # Before the nets are built: a file that cannot be written is refused at once.
            events = stack.enter_context(JsonLog(flags.log_json, bool(flags.snapshot))) if flags.log_json else None
            solver = stack.enter_context(create(param))
            solver.set_action_function(actions.requested)
            if flags.snapshot:
                log.info("Resuming from %s", flags.snapshot)
                solver.restore(flags.snapshot)
            if events is not None:
                solver.listeners.append(events)
                resumed = {"resumed_from": flags.snapshot} if flags.snapshot else {}
                solver.tell("start", solver=flags.solver, net=solver.net.name, max_iter=param.max_iter, **resumed)
            log.info("Starting Optimization")
            if len(numbers) > 1:
                check.fatal("Multi-GPU execution not available - rebuild with USE_NCCL")
            stack.enter_context(training_progress(solver))
            solver.solve()
            solver.tell("stopped" if solver.requested_early_exit else "done")
    log.info("Optimization Done.")
    return 0
