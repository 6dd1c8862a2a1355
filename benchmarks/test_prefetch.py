"""Images per second of the data layers; ``python -m benchmarks.prefetch`` shows them side by side."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.sources import BATCH, SOURCES, batches, limit, loop, make, net_of
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text, read_text

COMPUTE = """
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv" convolution_param {
  num_output: 96 kernel_size: 11 stride: 4 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip" inner_product_param {
  num_output: 10 weight_filler { type: "gaussian" std: 0.01 } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""
AT_A_TIME = 8  # batches, more than there are in advance


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("sources")
    make(made)
    return made


def _benchmark(benchmark, make_batch) -> None:
    def several() -> None:
        for _ in range(AT_A_TIME):
            make_batch()

    benchmark.pedantic(several, rounds=8, warmup_rounds=2)
    benchmark.extra_info["images_per_second"] = round(AT_A_TIME * BATCH / benchmark.stats.stats.min)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0])
def test_layer(benchmark, source, workers, folder):
    with batches(source, folder, workers) as take:
        _benchmark(benchmark, take)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0])
def test_loop_by_hand(benchmark, source, folder):
    _benchmark(benchmark, loop(source, folder))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0])
def test_limit_of_the_machine(benchmark, source, folder):
    _benchmark(benchmark, limit(source, folder))


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source[0])
def test_waiting_of_a_net_slower_than_its_data(benchmark, source, folder):
    """Which part of forward and backward is spent in the layer that reads: with data there, next to nothing."""
    param = read_text(str(net_of(source, folder)), caffe_pb2.NetParameter)
    param.MergeFrom(parse_text(COMPUTE, caffe_pb2.NetParameter, "benchmark"))
    param.state.phase = caffe_pb2.TRAIN
    waited = 0.0
    with Net(param) as net:
        last = len(net.layers) - 1

        def step() -> None:
            nonlocal waited
            start = time.perf_counter()
            net.forward_from_to(0, 0)
            waited += time.perf_counter() - start
            net.forward_from_to(1, last)
            net.backward_from_to(last, 0)

        for _ in range(6):  # batches made in advance
            step()
        waited = 0.0
        benchmark.pedantic(step, rounds=20)
    benchmark.extra_info["waiting"] = waited / benchmark.stats.stats.total
