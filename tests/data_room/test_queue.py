"""BlockingQueue: order, waiting, and the ways to end it."""

import itertools
import os
import signal
import threading
import time

import pytest

from refcaffe.data.queue import BlockingQueue, QueueClosed


class Waiting(threading.Thread):
    """A thread that calls a method of a queue."""

    def __init__(self, call):
        super().__init__()
        self.call = call
        self.got = self.error = None
        self.start()

    def run(self):
        try:
            self.got = self.call()
        except Exception as error:
            self.error = error

    def end(self):
        self.join(5)
        assert not self.is_alive()
        return self


def test_first_in_first_out():
    queue = BlockingQueue()
    for i in range(3):
        queue.push(i)
    assert queue.peek() == 0
    assert queue.size() == 3
    assert [queue.pop(), queue.try_pop(), queue.try_peek(), queue.pop()] == [0, 1, 2, 2]
    assert queue.size() == 0


def test_try_forms_leave_the_default():
    queue = BlockingQueue()
    assert queue.try_pop(77) == 77
    assert queue.try_peek() is None
    queue.push(4)
    assert queue.try_peek(1) == 4
    assert queue.try_pop(2) == 4


@pytest.mark.parametrize("form", ["pop", "peek"])
def test_waits_for_an_item(form):
    queue = BlockingQueue()
    waiting = Waiting(getattr(queue, form))
    time.sleep(0.05)
    assert waiting.is_alive()
    queue.push(8)
    assert waiting.end().got == 8
    assert queue.size() == (form == "peek")


def test_each_waiter_gets_its_own():
    queue = BlockingQueue()
    waiting = [Waiting(queue.pop) for _ in range(6)]
    peeking = [Waiting(queue.peek) for _ in range(3)]
    for i in range(7):
        queue.push(i)
    assert len({thread.end().got for thread in waiting}) == 6
    assert all(thread.end().got is not None for thread in peeking)
    assert queue.size() == 1


@pytest.mark.parametrize("form", ["pop", "peek"])
def test_close_ends_waiting_and_all_to_come(form):
    queue = BlockingQueue()
    waiting = [Waiting(getattr(queue, form)) for _ in range(3)]
    queue.close()
    assert all(isinstance(thread.end().error, QueueClosed) for thread in waiting)
    queue.push(1)
    with pytest.raises(QueueClosed):
        getattr(queue, form)()
    assert queue.try_pop() == 1


def test_failure_comes_after_the_items_and_stays():
    queue = BlockingQueue()
    queue.push(1)
    try:
        raise ValueError("bad record")
    except ValueError as error:
        queue.fail(error)
    assert queue.pop() == 1
    for _ in range(3):
        with pytest.raises(ValueError, match="bad record") as caught:
            queue.pop()
    depth = len(caught.traceback)
    with pytest.raises(ValueError, match="bad record") as caught:
        queue.peek()
    assert len(caught.traceback) == depth  # it does not grow


def test_failure_wakes_waiters():
    queue = BlockingQueue()
    waiting = [Waiting(queue.pop), Waiting(queue.peek)]
    queue.fail(KeyError("gone"))
    assert all(isinstance(thread.end().error, KeyError) for thread in waiting)


def test_logs_each_thousandth_wait(caplog, monkeypatch):
    monkeypatch.setattr("refcaffe.data.queue._waits", itertools.count(999))
    caplog.set_level("INFO", "refcaffe.blocking_queue.cpp")
    queue = BlockingQueue()
    for number, lines in enumerate([0, 1, 1]):
        waiting = Waiting(lambda: queue.pop("Waiting for data"))
        time.sleep(0.05)
        queue.push(number)
        assert waiting.end().got == number
        assert [record.message for record in caplog.records] == ["Waiting for data"] * lines


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_ctrl_c_ends_waiting_and_leaves_the_queue_whole():
    queue = BlockingQueue()
    main = threading.main_thread().ident
    timer = threading.Timer(0.1, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        queue.pop()
    assert time.monotonic() - started < 1
    timer.join()
    queue.push(3)
    assert queue.pop() == 3
