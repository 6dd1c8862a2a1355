"""On a CUDA device, where there is one: GPU mode as recorded, and what only a real device can show."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Iterator

import numpy as np
import pytest

from conformance.cases import find_cases
from conformance.cli import UsageError, default_fixtures
from conformance.engines import make_engine
from conformance.outcome import Status
from conformance.run import run_case
from refcaffe import context, device
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.context import Context
from refcaffe.device import Runtime
from refcaffe.device.xorwow import Xorwow
from refcaffe.syncedmem import Head


@pytest.fixture(autouse=True)
def cuda(fresh: Context) -> Iterator[Runtime]:
    try:
        runtime = device.make("cuda")
    except CheckError as error:
        pytest.skip(f"no CUDA device: {error.message}")
    with device.use(runtime):
        yield runtime


@pytest.mark.parametrize("run", ["layer", "net", "solver", "blob"])
def test_recorded_cases_of_gpu_mode(run: str) -> None:
    try:
        cases = [case for case in find_cases(default_fixtures() / "gpumode") if case.group == run]
    except UsageError:
        cases = []
    if not cases:
        pytest.skip("there are no recorded cases here")
    engine = make_engine("refcaffe", "cuda")
    outcomes = [run_case(case, engine) for case in cases]
    failed = [str(outcome) for outcome in outcomes if outcome.status is Status.FAILED]
    assert not failed, "\n".join(failed)


def test_bytes_go_there_and_back(cuda: Runtime) -> None:
    blob = Blob((3, 1000))
    blob.mutable_cpu_data()[...] = np.arange(3000).reshape(3, 1000)
    there = blob.mutable_gpu_data()
    there += 1
    np.testing.assert_array_equal(blob.cpu_data().reshape(-1), np.arange(1, 3001))
    assert blob.memories[0].head is Head.SYNCED  # type: ignore[union-attr]


def test_asynchronous_copies_arrive(cuda: Runtime) -> None:
    blob = Blob((1 << 20,))
    blob.mutable_cpu_data()[...] = 3
    stream = cuda.new_stream()
    blob.memories[0].async_gpu_push(stream)  # type: ignore[union-attr]
    stream.synchronize()
    assert float(blob.gpu_data().sum()) == 3 << 20


def test_numbers_are_those_of_the_host(cuda: Runtime) -> None:
    context.current().set_random_seed(1234)
    expected = Xorwow(1234)
    for count in (10, 5000, 3):
        words = cuda.xp.zeros(count, np.uint32)
        cuda.generator().words(words)
        np.testing.assert_array_equal(words.get(), expected.words(count))
    for dtype in (np.float32, np.float64):
        numbers = cuda.xp.zeros(5000, dtype)
        cuda.generator().uniform(numbers)
        np.testing.assert_array_equal(numbers.get(), expected.uniform(5000, dtype))


def test_more_memory_than_there_is(cuda: Runtime) -> None:
    total = cuda.properties(0)["totalGlobalMem"]
    blobs = [Blob((2**28,)) for _ in range(total // 2**30 + 1)]  # 1 GiB each
    with pytest.raises(CheckError, match="out of memory"):
        deque((blob.gpu_data() for blob in blobs), maxlen=0)
    del blobs
    gc.collect()
    assert float(Blob((2**20,)).gpu_data().sum()) == 0  # there is room again


def test_properties(cuda: Runtime) -> None:
    found = cuda.properties(0)
    assert found["name"]
    assert found["major"] >= 5
    assert found["warpSize"] == 32
