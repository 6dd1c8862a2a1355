"""The pool: the same bits for any number of threads, errors that reach the caller, and nothing left behind."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import refcaffe
from refcaffe.kernels import parallel
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text

LAYERS = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 5 dim: 12 dim: 60 dim: 60 } } }
layer { name: "t" type: "Input" top: "t" input_param { shape { dim: 5 } } }
layer { name: "c1" type: "Convolution" bottom: "x" top: "c1"
  convolution_param { num_output: 24 kernel_size: 5 stride: 2 weight_filler { type: "msra" } } }
layer { name: "r1" type: "ReLU" bottom: "c1" top: "c1" relu_param { negative_slope: 0.1 } }
layer { name: "n1" type: "LRN" bottom: "c1" top: "n1" }
layer { name: "p1" type: "Pooling" bottom: "n1" top: "p1" pooling_param { kernel_size: 3 stride: 2 } }
layer { name: "c2" type: "Convolution" bottom: "p1" top: "c2"
  convolution_param { num_output: 96 kernel_size: 3 pad: 1 group: 2 weight_filler { type: "msra" } } }
layer { name: "c3" type: "Convolution" bottom: "p1" top: "c3"
  convolution_param { num_output: 96 kernel_size: 1 weight_filler { type: "msra" } } }
layer { name: "sum" type: "Eltwise" bottom: "c2" bottom: "c3" top: "sum" }
layer { name: "bn" type: "BatchNorm" bottom: "sum" top: "sum" }
layer { name: "sc" type: "Scale" bottom: "sum" top: "sum" scale_param { bias_term: true } }
layer { name: "dc" type: "Deconvolution" bottom: "sum" top: "dc"
  convolution_param { num_output: 8 kernel_size: 4 stride: 2 weight_filler { type: "msra" } } }
layer { name: "cat" type: "Concat" bottom: "dc" bottom: "dc" top: "cat" }
layer { name: "p2" type: "Pooling" bottom: "cat" top: "p2" pooling_param { pool: AVE kernel_size: 5 stride: 3 } }
layer { name: "ip" type: "InnerProduct" bottom: "p2" top: "ip"
  inner_product_param { num_output: 700 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


@pytest.fixture(autouse=True)
def _same_number_afterwards():
    before = parallel.num_threads()
    yield
    parallel.set_num_threads(before)


def workers():
    names = {thread: thread.name.removeprefix(f"{parallel.WORKER_NAME}-") for thread in threading.enumerate()}
    return [thread for thread, name in names.items() if name.isdigit()]


def everything(threads):
    """All data and diffs of a net after a pass, as bytes."""
    parallel.set_num_threads(threads)
    refcaffe.set_random_seed(3)
    with Net(parse_text(LAYERS + "force_backward: true", caffe_pb2.NetParameter, "test"), refcaffe.TRAIN) as net:
        rng = np.random.default_rng(0)
        net.blobs["x"].data[...] = rng.standard_normal(net.blobs["x"].shape)
        net.blobs["t"].data[...] = rng.integers(0, 700, 5)
        net.forward_backward()
        blobs = [*net.all_blobs, *net.parameters.blobs]
        return [(blob.data.tobytes(), blob.diff.tobytes()) for blob in blobs]


def test_bits_do_not_depend_on_the_number_of_threads():
    alone = everything(1)
    for threads in (2, 3, 7):
        assert everything(threads) == alone


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_every_number_is_taken_once(threads):
    parallel.set_num_threads(threads)
    done = []
    parallel.for_each(100, done.append)
    assert sorted(done) == list(range(100))
    ranges = []
    parallel.for_ranges(100, 30, lambda start, stop: ranges.append((start, stop)))
    assert sorted(ranges) == [(0, 30), (30, 60), (60, 90), (90, 100)]


def test_what_is_not_worthwhile_stays_with_the_caller():
    parallel.set_num_threads(3)
    names = set()
    parallel.for_each(20, lambda i: names.add(threading.current_thread().name), worthwhile=False)
    assert names == {threading.current_thread().name}


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_commits_come_in_order(threads):
    parallel.set_num_threads(threads)
    committed = []

    def compute(i):
        time.sleep(0.002 if i % 3 == 0 else 0)
        return i

    parallel.in_order(30, compute, committed.append)
    assert committed == list(range(30))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_an_error_reaches_the_caller_and_the_pool_goes_on(threads):
    parallel.set_num_threads(threads)

    def fail(i):
        if i == 5:
            raise ValueError("five")
        return i

    with pytest.raises(ValueError, match="five"):
        parallel.for_each(20, fail)
    committed = []
    with pytest.raises(ValueError, match="five"):
        parallel.in_order(20, fail, committed.append)
    assert committed == sorted(committed)
    assert 5 not in committed
    done = []
    parallel.for_each(20, done.append)
    assert len(done) == 20


def test_work_inside_of_work_and_from_many_threads():
    parallel.set_num_threads(3)
    done = []

    def outer(i):
        parallel.for_each(10, lambda j: done.append((i, j)))

    callers = [threading.Thread(target=parallel.for_each, args=(10, outer)) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(timeout=30)
    assert len(done) == 400
    assert not any(caller.is_alive() for caller in callers)


def test_threads_start_when_needed_and_end_with_the_pool():
    parallel.set_num_threads(1)
    assert workers() == []
    parallel.set_num_threads(4)
    assert workers() == []
    for _ in range(3):
        parallel.for_each(50, lambda i: time.sleep(0.0005))
    assert len(workers()) == 3
    parallel.set_num_threads(1)
    assert workers() == []


def test_workers_compute_without_warnings():
    parallel.set_num_threads(2)
    zeros = np.zeros(4, np.float32)
    with np.errstate(all="ignore"):
        parallel.for_each(8, lambda i: (zeros / zeros, time.sleep(0.001)))


def test_scratch_belongs_to_a_thread_and_grows():
    first = parallel.scratch("test", (4, 5), np.float32)
    assert parallel.scratch("test", (2, 3), np.float32).base is first.base
    assert parallel.scratch("other", (2, 3), np.float32).base is not first.base
    assert parallel.scratch("test", (40, 50), np.float32).shape == (40, 50)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(parallel.scratch("test", (4, 5), np.float32)))
    thread.start()
    thread.join()
    assert not np.shares_memory(seen[0], parallel.scratch("test", (4, 5), np.float32))


def blas_threads():
    return [library.get_num_threads() for library in parallel._blas_libraries()]


def test_blas_has_one_thread_inside_and_what_it_had_outside():
    before = blas_threads()
    inside = []

    @parallel.calculation
    def compute(depth):
        inside.append(blas_threads())
        if depth:
            compute(depth - 1)

    compute(2)
    with pytest.raises(ZeroDivisionError), parallel.one_blas_thread:
        1 / 0
    assert inside == [[1] * len(before)] * 3
    assert blas_threads() == before


def _in_child(results):
    done = []
    parallel.for_each(20, done.append)
    results.put((sorted(done), len(workers())))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
def test_a_forked_process_starts_threads_of_its_own():
    parallel.set_num_threads(3)
    parallel.for_each(20, lambda i: None)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_in_child, args=(results,))
    child.start()
    child.join(timeout=30)
    assert child.exitcode == 0
    done, threads = results.get()
    assert done == list(range(20))
    assert threads == 2


@pytest.mark.parametrize("given, expected", [("3", 3), ("0", 1), ("", None)])
def test_the_environment_says_how_many(given, expected):
    code = "from refcaffe.kernels import parallel as p; p.for_each(9, lambda i: None); print(p.num_threads())"
    environment = {**os.environ, "REFCAFFE_NUM_THREADS": given}
    said = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert said.stderr == ""
    assert int(said.stdout) == (expected or len(os.sched_getaffinity(0)))
