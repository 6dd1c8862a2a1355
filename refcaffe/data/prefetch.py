"""Batches that a thread of its own fills while the net computes."""

from __future__ import annotations

import contextlib
import threading
import traceback
from collections.abc import Callable
from typing import Any

from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.context import InternalThread, Mode
from refcaffe.data.queue import BlockingQueue, QueueClosed
from refcaffe.device import runtime
from refcaffe.device.room import require

_check = Checker("base_data_layer.cpp")

_BYTES_OF_A_BATCH = 500  # without its data
_PATIENCE = 1.0  # seconds to wait for the thread of a collected layer, which the collecting one may hold up


class Batch:
    """The blobs of one batch."""

    __slots__ = ("data", "label")

    def __init__(self, dtype: DTypeLike) -> None:
        self.data = Blob(dtype=dtype)
        self.label = Blob(dtype=dtype)

    def blobs(self, labels: bool) -> list[Blob]:
        return [self.data, self.label] if labels else [self.data]


# Fills a batch, and looks from time to time whether it should rather stop: then it raises QueueClosed.
Load = Callable[[Batch, Callable[[], bool]], None]


class Prefetcher:
    """``count`` batches, the thread that fills them, and the queues between it and the layer.

    Batches go round: ``free`` ones are filled and pushed to ``full``. What the thread fails with is raised by
    ``take`` in place of the batch that could not be filled. ``resources`` are closed when the thread has
    ended. ``on_wake``: called when the thread is to end, for what else it may wait for. Nothing here knows the
    layer, so that the thread does not keep it alive.
    """

    def __init__(self, count: int, dtype: DTypeLike, name: str) -> None:
        require(count * _BYTES_OF_A_BATCH)
        self.name = name
        self.batches = [Batch(dtype) for _ in range(count)]
        self.free: BlockingQueue[Batch] = BlockingQueue()
        self.full: BlockingQueue[Batch] = BlockingQueue()
        for batch in self.batches:
            self.free.push(batch)
        self.resources = contextlib.ExitStack()
        self.on_wake: Callable[[], None] = lambda: None
        self._current: Batch | None = None
        self._thread: InternalThread | None = None
        self._thread_id = 0
        self._stopping = threading.Event()
        self._ended = threading.Event()

    def allocate(self, labels: bool) -> None:
        """Touch all memory now, so that the thread need not allocate any while the net does."""
        sides = ["cpu", "gpu"] if context.current().mode is Mode.GPU else ["cpu"]
        for side in sides:
            for batch in self.batches:
                for blob in batch.blobs(labels):
                    getattr(blob, f"mutable_{side}_data")()

    def start(self, load: Load, labels: bool) -> None:
        """Start to fill batches; draws one word of the caller's random stream."""

        def run(_: InternalThread) -> None:
            self._run(load, labels)

        self._thread = InternalThread(run, self._wake, f"prefetch {self.name}")
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """What the thread failed with."""
        return self.full.error

    @property
    def idle(self) -> bool:
        """Whether the thread has filled all batches but the one that is in use, and waits."""
        return self.full.size() == len(self.batches) - (self._current is not None)

    def take(self, log_on_wait: str = "Waiting for data") -> Batch:
        """Give the last call's batch back, and wait for the next one, which is yours until you give it back."""
        if not self.batches:
            _check.fatal("There are no batches, since prefetch is 0: original Caffe would wait forever.")
        self.give_back()
        try:
            self._current = self.full.pop(log_on_wait)
        except QueueClosed:
            _check.fatal("The layer was closed.")
        return self._current

    def give_back(self) -> None:
        """Let the batch that was taken be filled again; harmless if there is none."""
        # Interrupted, rather one buffer less than the same one twice in the queue.
        last, self._current = self._current, None
        if last is not None:
            self.free.push(last)

    def _run(self, load: Load, labels: bool) -> None:
        self._thread_id = threading.get_ident()
        try:
            with self.resources:
                self._fill(load, labels)
        except QueueClosed:
            pass
        except BaseException as error:
            # Neither the database's memory nor this object should live as long as the error.
            traceback.clear_frames(error.__traceback__)
            if isinstance(error, CheckError):
                error.within(f"prefetch thread of layer '{self.name}'")
            self.full.fail(error)
        finally:
            self._ended.set()

    def _fill(self, load: Load, labels: bool) -> None:
        gpu = context.current().mode is Mode.GPU
        stream = self._new_stream() if gpu else None
        while True:
            batch = self.free.pop()
            load(batch, self._stopping.is_set)
            if stream is not None:
                self._push(batch.blobs(labels), stream)
            self.full.push(batch)

    @staticmethod
    def _new_stream() -> Any:
        runtime().set_device(context.current().device)
        return runtime().new_stream()

    @staticmethod
    def _push(blobs: list[Blob], stream: Any) -> None:
        for blob in blobs:
            blob.data_memory().async_gpu_push(stream)
        stream.synchronize()

    def _wake(self) -> None:
        self._stopping.set()
        self.free.close()
        self.full.close()
        self.on_wake()

    def close(self, patience: float | None = None) -> None:
        """End the thread, wait until it has (``patience`` seconds at most), and close the resources."""
        self._wake()
        thread, self._thread = self._thread, None
        if thread is None:
            self.resources.close()
        elif self._thread_id != threading.get_ident() and self._ended.wait(patience):
            thread.stop()

    def abandon(self) -> None:
        """``close`` for the garbage collector, which may interrupt whatever the thread waits for."""
        self.close(_PATIENCE)
