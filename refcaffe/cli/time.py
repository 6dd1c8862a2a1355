"""``refcaffe time``: how long each layer of a net takes, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np

from refcaffe.checks import shown
from refcaffe.cli.brew import check, choose_device, log
from refcaffe.cli.flags import Flags
from refcaffe.context import Mode, current
from refcaffe.device import runtime
from refcaffe.kernels.parallel import calculation
from refcaffe.net import Net
from refcaffe.net.read import read_net_in_state
from refcaffe.proto import caffe_pb2

PHASES = {"": caffe_pb2.TRAIN, "TRAIN": caffe_pb2.TRAIN, "TEST": caffe_pb2.TEST}


def run(flags: Flags) -> int:
    """Run a net forward and backward so many times, after once without the clock; prints the averages."""
    check.gt(len(flags.model), 0, "FLAGS_model.size() > 0", "Need a model definition to time.")
    if flags.phase not in PHASES:
        check.fatal('phase must be "TRAIN" or "TEST"')
    choose_device(flags)
    with Net(read_net_in_state(flags.model, PHASES[flags.phase], flags.level, flags.stages)) as net:
        last = len(net.layers) - 1
        log.info("Performing Forward")
        log.info("Initial loss: %s", shown(net.forward_from_to(0, last)))
        log.info("Performing Backward")
        net.backward_from_to(last, 0)
        _time(net, flags.iterations)
    return 0


def _now() -> float:
    """Milliseconds, when the device has done what was asked of it."""
    cuda = getattr(runtime().xp, "cuda", None)  # CuPy's: the other array modules wait anyway
    if cuda is not None and current().mode is Mode.GPU:
        cuda.runtime.deviceSynchronize()
    return perf_counter() * 1000


def _timed(function: Callable[..., Any], *args: Any) -> float:
    start = _now()
    function(*args)
    return _now() - start


@calculation
def _time(net: Net, iterations: int) -> None:
    """Time every layer by itself, those that need no backward pass too, as upstream does."""
    numbers = range(len(net.layers))
    forward, backward = [0.0 for _ in numbers], [0.0 for _ in numbers]
    forward_total = backward_total = 0.0
    log.info("*** Benchmark begins ***")
    log.info("Testing for %d iterations.", iterations)
    start = _now()
    for iteration in range(iterations):
        began = _now()
        for i in numbers:
            forward[i] += _timed(net.layers[i].forward, net.bottoms[i], net.tops[i])
        between = _now()
        for i in reversed(numbers):
            backward[i] += _timed(net.layers[i].backward, net.tops[i], net.bottom_need_backward[i], net.bottoms[i])
        forward_total += between - began
        backward_total += _now() - between
        # As upstream's timers have it: whole milliseconds here and in the last two sums.
        log.info("Iteration: %d forward-backward time: %d ms.", iteration + 1, _now() - began)
    log.info("Average time per layer: ")
    for i in numbers:
        name = net.layers[i].param.name
        log.info("%10s\tforward: %s ms.", name, _average(forward[i], iterations))
        log.info("%10s\tbackward: %s ms.", name, _average(backward[i], iterations))
    total = float(int(_now() - start))
    log.info("Average Forward pass: %s ms.", _average(forward_total, iterations))
    log.info("Average Backward pass: %s ms.", _average(backward_total, iterations))
    log.info("Average Forward-Backward: %s ms.", _average(total, iterations))
    log.info("Total Time: %s ms.", shown(total))
    log.info("*** Benchmark ends ***")


def _average(milliseconds: float, iterations: int) -> str:
    return shown(np.float64(milliseconds) / iterations)
