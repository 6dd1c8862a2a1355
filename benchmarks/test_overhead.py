"""What Python costs per training iteration: a net so small that the arithmetic takes no time."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text
from refcaffe.solvers import create

NET = """
layer { name: "x" type: "Input" top: "x" top: "t" input_param { shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }
"""
SOLVER = 'base_lr: 0.01 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.0005 snapshot_prefix: "unused"'
STEPS = 100


def test_tiny_net(benchmark: Any) -> None:
    """An iteration of one InnerProduct and its loss: forward, backward, SGD with momentum and decay."""
    param = parse_text(SOLVER, caffe_pb2.SolverParameter, "benchmark")
    param.net_param.CopyFrom(parse_text(NET, caffe_pb2.NetParameter, "benchmark"))
    with create(param) as solver:
        benchmark.pedantic(solver.step, args=(STEPS,), rounds=60, warmup_rounds=5)
    benchmark.extra_info["microseconds_per_iteration"] = benchmark.stats.stats.min / STEPS * 1e6


def test_the_same_in_numpy(benchmark: Any) -> None:
    """The bare arithmetic of that iteration, as one would write it by hand."""
    real = np.float32
    x, t = np.zeros((4, 3), real), np.zeros((4, 2), real)
    w, b = np.full((2, 3), 0.1, real), np.zeros(2, real)
    hw, hb = np.zeros_like(w), np.zeros_like(b)

    def steps() -> None:
        for _ in range(STEPS):
            error = x @ w.T + b - t
            float((error * error).sum()) / 8
            for value, history, gradient in ((w, hw, error.T @ x / 4), (b, hb, error.sum(0) / 4)):
                gradient += real(0.0005) * value
                history *= real(0.9)
                history += real(0.01) * gradient
                np.subtract(value, history, out=value)

    benchmark.pedantic(steps, rounds=60, warmup_rounds=5)
    benchmark.extra_info["microseconds_per_iteration"] = benchmark.stats.stats.min / STEPS * 1e6
