"""Per-thread state and the threads that inherit it."""

import threading

import pytest

from refcaffe import context
from refcaffe.checks import CheckError
from refcaffe.context import Context, InternalThread, Mode
from refcaffe.rng import Stream


@pytest.fixture(autouse=True)
def _fresh_context(monkeypatch):
    monkeypatch.setattr(context._local, "context", Context())


def run_and_collect(work):
    """What ``work`` returns on an InternalThread started here."""
    results = []
    thread = InternalThread(lambda _: results.append(work()), lambda: None, "test")
    thread.start()
    thread.stop()
    return results[0]


def test_a_plain_thread_gets_the_default_context():
    context.current().mode = Mode.GPU
    seen = []
    thread = threading.Thread(target=lambda: seen.append(context.current().mode))
    thread.start()
    thread.join()
    assert seen == [Mode.CPU]


def test_an_internal_thread_inherits_and_draws_one_word():
    here = context.current()
    here.mode, here.device, here.solver_count, here.solver_rank, here.multiprocess = Mode.GPU, 2, 4, 3, True
    here.set_random_seed(7)
    word = Stream(7).raw()
    there = run_and_collect(context.current)
    assert (there.mode, there.device, there.solver_count, there.solver_rank, there.multiprocess) == (
        Mode.GPU, 2, 4, 3, True,
    )  # fmt: skip
    assert there.stream.raw() == Stream(word).raw()
    assert here.stream.draws == 1


def test_seeds_are_taken_modulo_two_to_the_32():
    context.current().set_random_seed(-1)
    assert context.current().stream.raw() == Stream(2**32 - 1).raw()


def test_an_unseeded_stream_differs_from_thread_to_thread():
    words = {run_and_collect(Context().stream.raw) for _ in range(4)}
    assert len(words) > 1


def test_a_running_thread_cannot_be_started_again():
    release = threading.Event()
    thread = InternalThread(lambda _: release.wait(), release.set, "test")
    thread.start()
    with pytest.raises(CheckError, match="Threads should persist"):
        thread.start()
    thread.stop()
    assert not thread.started


def test_stop_is_seen_by_the_thread_and_harmless_twice():
    woken = threading.Event()
    seen = []

    def entry(thread):
        woken.wait()
        seen.append(thread.must_stop)

    thread = InternalThread(entry, woken.set, "test")
    thread.start()
    thread.stop()
    thread.stop()
    assert seen == [True]


def test_another_build_is_reproduced_inside_a_block_only():
    with context.build(reader_era=True):
        assert context.current_build().reader_era
    assert not context.current_build().reader_era
