"""From images to a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from refcaffe.checks import CheckError
from refcaffe.data import workers
from refcaffe.data.datum import Datum
from refcaffe.data.prefetch import Batch
from refcaffe.data.queue import QueueClosed
from refcaffe.data.transformer import DataTransformer, Mat, Shape
from refcaffe.telling import telling


class Item(Protocol):
    """An image that is still where it comes from, and its label. ``str()`` says where that is."""

    @property
    def label(self) -> int: ...

    def image(self) -> Datum | Mat:
        """The image, for the transformer; on any thread. CheckError if there is none."""


class Items(Protocol):
    """An endless source of items."""

    def peek(self) -> Any:
        """The next item, which stays the next."""

    def take(self) -> Any:
        """The next item; the caller has it until ``give_back``."""

    def give_back(self, item: Any) -> None: ...


class _Job(NamedTuple):
    """What is left to do for one item of a batch: on any thread, in any order."""

    item: Item
    image: Datum | Mat | None  # if it is there already
    words: Sequence[int]
    out: NDArray[Any]


@contextmanager
def _telling(item: Item) -> Iterator[None]:
    """Name the item in errors."""
    with telling(lambda: str(item)):
        try:
            yield
        except CheckError as error:
            if isinstance(item, Datum) and item.damage:
                error.within(f"it is no whole Datum: {item.damage}")
            raise


class BatchLoader:
    """Fills batches of ``batch_size`` images, each shaped by its first one.

    A batch is planned in order, on one thread: its items taken, their labels written, their random words drawn.
    What is planned is carried out by several threads: images are read and transformed straight into its memory.
    """

    def __init__(self, items: Items, transformer: DataTransformer, batch_size: int, labels: bool) -> None:
        self._items = items
        self._transformer = transformer
        self._batch_size = batch_size
        self._labels = labels

    def first_shape(self) -> Shape:
        """The shape of a batch by the next item, which is not used up."""
        item = self._items.peek()
        with _telling(item):
            return self._shape(self._open(item))

    def _open(self, item: Item) -> Datum | Mat:
        image = item.image()
        return self._transformer.decode(image) if isinstance(image, Datum) and image.encoded else image

    def _shape(self, image: Datum | Mat) -> Shape:
        transformer = self._transformer
        shape = transformer.infer_datum(image) if isinstance(image, Datum) else transformer.infer_mat(image)
        return self._batch_size, *shape[1:]

    def load(self, batch: Batch, stopping: Callable[[], bool]) -> None:
        """Fill a batch. CheckError names the item; QueueClosed if ``stopping`` became true."""
        taken: list[Item] = []

        def work(job: _Job) -> None:
            if stopping():
                raise QueueClosed
            try:
                image = self._open(job.item) if job.image is None else job.image
                self._transformer.transform_item(image, job.out, job.words)
            except (CheckError, MemoryError):
                with _telling(job.item):
                    raise

        workers.for_each(self._plan(batch, taken, stopping), work)
        for item in taken:
            self._items.give_back(item)

    def _plan(self, batch: Batch, taken: list[Item], stopping: Callable[[], bool]) -> Iterator[_Job]:
        words = self._transformer.draw(self._batch_size)
        for i in range(self._batch_size):
            if stopping():
                raise QueueClosed
            item = self._items.take()
            taken.append(item)
            image = self._begin(batch, item) if i == 0 else None
            if i == 0:
                items = batch.data.mutable_cpu_data()
                labels = batch.label.mutable_cpu_data() if self._labels else None
            if labels is not None:
                labels[i] = item.label
            yield _Job(item, image, words[i], items[i])

    def _begin(self, batch: Batch, item: Item) -> Datum | Mat | None:
        """Shape a batch by its first item; returns the image, to be used again, unless it is none."""
        with _telling(item):
            image = self._open(item)
            batch.data.reshape(self._shape(image))
        return None if isinstance(image, np.ndarray) and not image.size else image
