"""refcaffe's times, net by net; ``python -m benchmarks`` compares them with others'."""

from __future__ import annotations

import pytest

from benchmarks import nets


@pytest.mark.parametrize("what", nets.PASSES)
@pytest.mark.parametrize("name", nets.NAMES)
def test_batch(benchmark, name, what):
    net = nets.load(name)
    run = nets.runner(net, what)
    run()
    benchmark.extra_info["GFLOP"] = 2e-9 * nets.products(net) * (3 if what == "both" else 1)
    benchmark(run)


@pytest.mark.parametrize("name", nets.NAMES)
def test_single_image(benchmark, name):
    run = nets.runner(nets.load(name, 1), "forward")
    run()
    benchmark(run)
