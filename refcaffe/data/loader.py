"""From records to a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numpy.typing import NDArray

from refcaffe.checks import CheckError
from refcaffe.data.datum import Datum, parse
from refcaffe.data.prefetch import Batch
from refcaffe.data.queue import QueueClosed
from refcaffe.data.records import Record, Records
from refcaffe.data.transformer import DataTransformer


class _Job(NamedTuple):
    """What is left to do for one item of a batch: on any thread, in any order."""

    record: Record
    datum: Datum
    words: tuple[int, ...]
    out: NDArray[Any]


@contextmanager
def _telling(record: Record, datum: Datum) -> Iterator[None]:
    """Name the record in errors."""
    try:
        yield
    except CheckError as error:
        if datum.damage:
            error.within(f"it is no whole Datum: {datum.damage}")
        error.within(str(record))
        raise


class RecordLoader:
    """Fills batches of ``batch_size`` records, each shaped by its first one.

    A batch is planned in order: its records taken, their labels written, their random words drawn. Then the
    images are transformed straight into its memory.
    """

    def __init__(self, records: Records, transformer: DataTransformer, batch_size: int, labels: bool) -> None:
        self._records = records
        self._transformer = transformer
        self._batch_size = batch_size
        self._labels = labels

    def first_shape(self) -> tuple[int, int, int, int]:
        """The shape of a batch by the next record, which is not used up."""
        record = self._records.peek()
        return self._shape(record, parse(record.value))

    def _shape(self, record: Record, datum: Datum) -> tuple[int, int, int, int]:
        with _telling(record, datum):
            return self._batch_size, *self._transformer.infer_datum(datum)[1:]

    def load(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        """Fill a batch. CheckError names the record; QueueClosed if ``stopping`` became true."""
        for job in self._plan(batch, stopping):
            if stopping():
                raise QueueClosed
            with _telling(job.record, job.datum):
                self._transformer.transform_item(job.datum, job.out, job.words)

    def _plan(self, batch: Batch, stopping: Callable[[], bool]) -> list[_Job]:
        jobs: list[_Job] = []
        for i in range(self._batch_size):
            if stopping():
                raise QueueClosed
            record = self._records.take()
            datum = parse(record.value)
            if i == 0:
                batch.data.reshape(self._shape(record, datum))
                items = batch.data.mutable_cpu_data()
                labels = batch.label.mutable_cpu_data() if self._labels else None
            if labels is not None:
                labels[i] = datum.label
            jobs.append(_Job(record, datum, self._transformer.draw(), items[i]))
        return jobs
