"""Devices with too little memory, and several devices."""

from __future__ import annotations

import gc
import re
import threading
from pathlib import Path

import numpy as np
import pytest

import refcaffe
from refcaffe import context, device
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.context import Context, Mode
from refcaffe.device import FakeRuntime
from refcaffe.net import Net
from tests.net.nets import make_net

NET = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "t" type: "Input" top: "t" input_param { shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "norm" type: "BatchNorm" bottom: "conv" top: "norm" }
layer { name: "lrn" type: "LRN" bottom: "norm" top: "lrn" }
layer { name: "pool" type: "Pooling" bottom: "lrn" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "drop" type: "Dropout" bottom: "pool" top: "drop" }
layer { name: "ip" type: "InnerProduct" bottom: "drop" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
"""

SOLVER = """
base_lr: 0.1 lr_policy: "fixed" momentum: 0.9 weight_decay: 0.1 max_iter: 2 type: "Adam" momentum2: 0.9 snapshot: 0
net_param {{ {net} }}
"""


def train(net: Net) -> None:
    net.forward()
    net.clear_param_diffs()
    net.backward()


def enough(fresh: Context) -> int:
    """Bytes that a pass of the net takes."""
    with device.use(FakeRuntime(devices=1)) as runtime, make_net(NET) as net:
        train(net)
        return runtime.in_use[0]  # type: ignore[attr-defined]


def test_too_little_memory_for_a_pass_is_a_clear_error_and_leaks_nothing(fresh: Context) -> None:
    total = enough(fresh)
    steps = [*range(0, total, max(total // 40, 1)), total - 1]
    layers = set()
    for limit in steps:
        runtime = FakeRuntime(devices=1, bytes_each=limit)
        with device.use(runtime):
            net = make_net(NET)
            with pytest.raises(CheckError, match="out of memory") as caught:
                train(net)
            text = str(caught.value)
            assert re.search(r"\d+ bytes on device 0", text), text
            layers.add(re.search(r'layer "(\w+)"', text).group(1) if 'layer "' in text else text)  # type: ignore[union-attr]
            net.close()
            del net, caught
            gc.collect()
            assert runtime.in_use == [0], f"{limit} bytes"
    assert len(layers) > 4  # it ran out at many places
    runtime = FakeRuntime(devices=1, bytes_each=total)
    with device.use(runtime), make_net(NET) as net:
        train(net)


def test_a_net_that_ran_out_of_memory_goes_on_when_there_is_some_again(fresh: Context) -> None:
    total = enough(fresh)
    runtime = FakeRuntime(devices=1, bytes_each=total + 4000)
    with device.use(runtime), make_net(NET) as net:
        other = Blob((1500,))
        other.gpu_data()
        with pytest.raises(CheckError, match="out of memory"):
            train(net)
        del other
        gc.collect()
        train(net)
        assert runtime.in_use[0] == total


@pytest.mark.parametrize("limit", [0, 4000, 12000])
def test_too_little_memory_for_training_is_a_clear_error_and_leaks_nothing(
    fresh: Context, limit: int, tmp_path: Path
) -> None:
    path = tmp_path / "solver.prototxt"
    path.write_text(SOLVER.format(net=NET), encoding="utf-8")
    runtime = FakeRuntime(devices=1, bytes_each=limit)
    with device.use(runtime):
        solver = refcaffe.get_solver(str(path))
        with pytest.raises(CheckError, match="out of memory"):
            solver.step(2)
        solver.close()
        del solver
        gc.collect()
        assert runtime.in_use == [0]


def test_results_on_another_device_are_the_same(fresh: Context) -> None:
    found = []
    for number in range(3):
        with device.use(FakeRuntime()) as runtime:
            runtime.set_device(number)
            fresh.set_random_seed(1)
            with make_net(NET) as net:
                net.blobs["x"].mutable_cpu_data()[...] = np.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
                net.blobs["t"].mutable_cpu_data()[...] = [1, 3]
                train(net)
                found.append([blob.cpu_diff().copy() for blob in net.params["conv"]])
                used = runtime.in_use  # type: ignore[attr-defined]
                assert [i for i, nbytes in enumerate(used) if nbytes] == [number]
        fresh.device = 0
    for other in found[1:]:
        np.testing.assert_array_equal(other[0], found[0][0])


def test_threads_train_on_devices_of_their_own(fake: FakeRuntime) -> None:
    used: dict[int, int] = {}
    start = threading.Barrier(3)
    nets = []

    def work(number: int) -> None:
        here = context.current()
        here.mode = Mode.GPU
        fake.set_device(number)
        here.set_random_seed(1)
        net = make_net(NET)
        start.wait()
        train(net)
        used[number] = fake.get_device()
        nets.append(net)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used == {1: 1, 2: 2, 3: 3}
    assert context.current().device == 0
    assert fake.in_use[0] == 0
    assert len(set(fake.in_use[1:])) == 1  # as much on each
    assert fake.in_use[1] > 0
    for net in nets:
        net.close()
    del nets[:], net
    gc.collect()
    assert fake.in_use == [0, 0, 0, 0]


def test_a_device_that_is_not_there(fake: FakeRuntime) -> None:
    for number in (-1, 4):
        with pytest.raises(CheckError, match="invalid device ordinal") as caught:
            fake.set_device(number)
        assert f"device {number} of 4" in str(caught.value)
    assert context.current().device == 0
