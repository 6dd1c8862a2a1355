"""The training loop: what recorded runs cannot show. The recorded runs are conformance cases."""

import gc
import os
import threading

import numpy as np
import pytest

import refcaffe
from refcaffe.checks import CheckError
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text
from refcaffe.solvers import SGDSolver, SolverAction, create

NET = """
layer { name: "x" type: "DummyData" top: "x" top: "t" dummy_data_param {
  shape { dim: 4 dim: 3 } shape { dim: 4 dim: 2 }
  data_filler { type: "gaussian" } data_filler { type: "constant" value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param {
  num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "EuclideanLoss" bottom: "ip" bottom: "t" top: "loss" }
"""


def make(extra="", solver_type="SGD", **options):
    param = parse_text(f'base_lr: 0.1 lr_policy: "fixed" random_seed: 3 type: "{solver_type}" {extra}',
                       caffe_pb2.SolverParameter, "test")  # fmt: skip
    if not param.HasField("snapshot_prefix"):
        param.snapshot_prefix = "unused"
    param.net_param.CopyFrom(parse_text(NET, caffe_pb2.NetParameter, "test"))
    return create(param, **options)


def weights(solver):
    return [blob.cpu_data().copy() for blob in solver.net.parameters.learnable]


@pytest.mark.parametrize("solver_type", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_every_type_learns_and_repeats_itself_bit_for_bit(solver_type):
    extra = "momentum: 0.9" if solver_type not in ("AdaGrad", "RMSProp") else ""
    first = make(extra, solver_type)
    first.step(1)
    start = first.losses[0]
    first.step(60)
    assert first.losses[-1] < start
    second = make(extra, solver_type)  # seeds the stream that both draw from
    second.step(61)
    for a, b in zip(weights(first), weights(second), strict=True):
        np.testing.assert_array_equal(a, b)


def test_iterations_and_callbacks():
    solver, calls = make(), []
    solver.add_callback(lambda: calls.append(("start", solver.iter)), lambda: calls.append(("ready", solver.iter)))
    solver.step(2)
    assert calls == [("start", 0), ("ready", 0), ("start", 1), ("ready", 1)]
    assert solver.iter == 2


def test_two_passes_make_one_iteration():
    solver = make("iter_size: 2")
    passes = []
    solver.net.before_forward(lambda i: passes.append(i) if i == 0 else None)
    solver.step(3)
    assert len(passes) == 6


def test_an_action_stops_or_snapshots(tmp_path):
    solver = make(f'snapshot_prefix: "{tmp_path}/s" snapshot_after_train: false')
    actions = iter([SolverAction.NONE, SolverAction.SNAPSHOT, SolverAction.STOP])
    solver.set_action_function(lambda: next(actions))
    solver.param.max_iter = 10
    solver.solve()
    assert solver.iter == 3
    assert solver.requested_early_exit
    assert sorted(os.listdir(tmp_path)) == ["s_iter_2.caffemodel", "s_iter_2.solverstate"]


def test_a_resumed_run_equals_the_whole_one(tmp_path):
    extra = f'momentum: 0.9 snapshot: 3 snapshot_prefix: "{tmp_path}/s"'
    feed = np.random.default_rng(0).normal(size=(6, 4, 3)).astype(np.float32)

    def fed(solver):
        # The data must be the same, so it is put over what DummyData drew.
        solver.net.after_forward(
            lambda i: solver.net.blobs["x"].data.__setitem__(..., feed[solver.iter]) if i == 0 else None
        )
        return solver

    whole = fed(make(extra))
    whole.step(6)
    resumed = fed(make(extra))
    resumed.restore(f"{tmp_path}/s_iter_3.solverstate")
    assert resumed.iter == 3
    resumed.step(3)
    for a, b in zip(weights(whole), weights(resumed), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_snapshot_that_cannot_be_written_is_refused_before_training(tmp_path):
    with pytest.raises(CheckError, match="Cannot write to snapshot prefix"):
        make(f'snapshot: 1 snapshot_prefix: "{tmp_path}/no/s"')


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ('lr_policy: "fixed"', "already specified|Non-repeated|specified multiple times"),
        ("average_loss: 0", "average_loss should be non-negative"),
        ("test_iter: 1", r"param_.test_interval\(\) > 0"),
        ('net: "also.prototxt"', "more than one of these fields"),
        ("clip_gradients: -1 regularization_type: 'L3' weight_decay: 1", "Unknown regularization type: L3"),
    ],
)
def test_refusals(extra, message):
    with pytest.raises(CheckError, match=message) as caught:
        make(extra.replace("'", '"')).step(1)
    assert caught.value.message


def test_an_unknown_type_lists_the_known_ones():
    with pytest.raises(CheckError, match=r"Unknown solver type: Magic \(known types: AdaDelta, AdaGrad, Adam"):
        make(solver_type="Magic")


def test_the_class_ignores_the_type():
    param = parse_text('base_lr: 0.1 lr_policy: "fixed" type: "Adam"', caffe_pb2.SolverParameter, "test")
    param.net_param.CopyFrom(parse_text(NET, caffe_pb2.NetParameter, "test"))
    assert type(SGDSolver(param)) is SGDSolver


def test_clipping_bounds_the_norm():
    solver = make("clip_gradients: 0.01")
    solver.step(1)
    norm = np.sqrt(sum(float((blob.cpu_diff() ** 2).sum()) for blob in solver.net.parameters.learnable))
    assert norm == pytest.approx(0.1 * 0.01, rel=1e-5)  # the diff holds the update: rate times clipped gradient


def test_a_thousand_steps_leave_nothing_behind():
    solver = make("momentum: 0.9")
    solver.step(100)
    gc.collect()

    def resources():
        with open("/proc/self/statm") as file:
            pages = int(file.read().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), threading.active_count(), len(os.listdir("/proc/self/fd"))

    memory, threads, files = resources()
    solver.step(1000)
    gc.collect()
    memory_after, threads_after, files_after = resources()
    assert threads_after <= threads
    assert files_after == files
    assert memory_after - memory < 2 << 20


def test_a_double_precision_solver():
    solver = make(dtype=np.float64)
    solver.step(2)
    assert all(w.dtype == np.float64 for w in weights(solver))


def test_get_solver_reads_files(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    path = tmp_path / "solver.prototxt"
    path.write_text(f'net: "{tmp_path}/net.prototxt" base_lr: 0.1 lr_policy: "fixed"')
    solver = refcaffe.get_solver(str(path))
    assert solver.param.snapshot_prefix == str(tmp_path / "solver")
