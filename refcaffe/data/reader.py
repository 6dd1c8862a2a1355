"""DataReader, of the Caffes up to January 2017: one thread per database reads for the layers of several solvers."""

from __future__ import annotations

import threading
import traceback
import weakref
from typing import TYPE_CHECKING

from refcaffe import context
from refcaffe.checks import Checker, CheckError
from refcaffe.context import InternalThread
from refcaffe.data.datum import Datum
from refcaffe.data.queue import BlockingQueue, QueueClosed
from refcaffe.data.records import CursorRecords
from refcaffe.device.room import require
from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter

_check = Checker("data_reader.cpp")

_BYTES_OF_A_DATUM = 200  # without its data
_PATIENCE = 1.0  # seconds to wait for the thread of a collected reader, which the collecting one may hold up


class QueuePair:
    """``size`` records that go round between a reader's user and the thread that fills them."""

    def __init__(self, size: int) -> None:
        require(size * _BYTES_OF_A_DATUM)
        self.free: BlockingQueue[Datum] = BlockingQueue()
        self.full: BlockingQueue[Datum] = BlockingQueue()
        for _ in range(size):
            self.free.push(Datum())


class _Body:
    """A database, and the thread that reads it for the readers of one layer name and source, in turn."""

    def __init__(self, key: str, param: LayerParameter) -> None:
        self.key = key
        self.readers = 0
        self.error: BaseException | None = None
        # In TEST there is one solver only.
        self.served = context.current().solver_count if param.phase == caffe_pb2.TRAIN else 1
        self.pairs: list[QueuePair] = []  # of all readers that there ever were
        self._new: BlockingQueue[QueuePair] = BlockingQueue()
        self._source, self._backend = param.data_param.source, param.data_param.backend
        self._thread = InternalThread(self._run, self._wake, f"reader {key}")
        self._thread.start()

    def add(self, pair: QueuePair) -> None:
        self.readers += 1
        self.pairs.append(pair)
        self._new.push(pair)

    def _run(self, thread: InternalThread) -> None:
        try:
            records = CursorRecords(self._source, self._backend)
            try:
                self._serve(records)
            finally:
                records.close()
        except QueueClosed:
            pass
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)
            if isinstance(error, CheckError):
                error.within(f"reading thread of '{self.key}'")
            self._fail(error)

    def _serve(self, records: CursorRecords) -> None:
        served: list[QueuePair] = []
        # One record for each as it comes, by which it shapes its batches; then all in turn.
        for _ in range(self.served):
            served.append(self._new.pop())
            self._read_one(records, served[-1])
        while not self._thread.must_stop:
            for pair in served:
                self._read_one(records, pair)
            _check.eq(self._new.size(), 0, "new_queue_pairs_.size() == 0")

    @staticmethod
    def _read_one(records: CursorRecords, pair: QueuePair) -> None:
        pair.full.push(records.take(pair.free.pop()))

    def _fail(self, error: BaseException) -> None:
        """Tell all who read, and let the next one try anew."""
        with _lock:
            self.error = error
            if _bodies.get(self.key) is self:
                del _bodies[self.key]
            for pair in self.pairs:
                pair.full.fail(error)

    def _wake(self) -> None:
        self._new.close()
        for pair in self.pairs:
            pair.free.close()

    def stop(self, patience: float | None) -> None:
        self._thread.stop(patience)


# By layer name and source, but for those that failed. The lock is reentrant since a garbage collection inside may end
# a reader.
_bodies: dict[str, _Body] = {}
_with_readers: set[_Body] = set()
_lock = threading.RLock()


def bodies() -> int:
    """How many reading threads there are, those that failed included as long as they have readers."""
    with _lock:
        return len(_with_readers)


def _release(body: _Body, pair: QueuePair, patience: float | None) -> None:
    pair.full.close()
    with _lock:
        body.readers -= 1
        last = not body.readers
        if last:
            _with_readers.discard(body)
            if _bodies.get(body.key) is body:
                del _bodies[body.key]
    if last:
        body.stop(patience)


class DataReader:
    """A layer's part of a database's records: ``full`` ones, to be given back to ``free``.

    Readers of one layer name and source share a thread, which the first of them makes, with one word of the random
    stream. It waits for as many readers as there are solvers and serves them in turn, one record each, each in its
    own time: one that does not give back holds up all. There must not be more readers; in TEST there is one.

    What the thread fails with, ``full`` raises behind the records that are there. ``close`` ends the thread if this
    is the last reader.
    """

    QueuePair = QueuePair

    def __init__(self, param: LayerParameter) -> None:
        data = param.data_param
        key = f"{param.name}:{data.source}"
        self._size = (data.prefetch * data.batch_size + 2**31) % 2**32 - 2**31  # an int of C
        self._pair = QueuePair(self._size)
        with _lock:
            body = _bodies.get(key)
            if body is None:
                body = _bodies[key] = _Body(key, param)
                _with_readers.add(body)
            body.add(self._pair)
        self._body = body
        self._end = weakref.finalize(self, _release, body, self._pair, _PATIENCE)

    @property
    def free(self) -> BlockingQueue[Datum]:
        return self._pair.free

    @property
    def full(self) -> BlockingQueue[Datum]:
        return self._pair.full

    @property
    def error(self) -> BaseException | None:
        """What the thread failed with."""
        return self._body.error

    def check_served(self) -> None:
        """Refuse to wait for what never comes: records for one reader too many, or through queues of no length."""
        if self._body.pairs.index(self._pair) >= self._body.served:
            _check.eq(1, 0, "new_queue_pairs_.size() == 0")
        if self._size <= 0:
            _check.fatal("The reader's queues have no length: original Caffe would wait forever.")

    def close(self) -> None:
        """Give the reader up; harmless the second time."""
        if self._end.detach() is not None:
            _release(self._body, self._pair, None)


class ReaderRecords:
    """The records of a reader, as a layer asks for them."""

    def __init__(self, reader: DataReader) -> None:
        self._reader = reader

    def peek(self) -> Datum:
        """The next record, at set-up; waits for it only if it will come."""
        self._reader.check_served()
        return self._reader.full.peek()

    def take(self) -> Datum:
        return self._reader.full.pop("Waiting for data")

    def give_back(self, datum: Datum) -> None:
        self._reader.free.push(datum)
