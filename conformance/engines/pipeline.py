"""What an engine offers of the data pipeline: transformer, data layers, readers and databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from conformance.engines.pycaffe import Pycaffe

Records = Sequence[tuple[bytes, bytes]]
Place = tuple[bool | None, int, int]  # mirrored or not (None: that cannot be seen), offsets of height and width


class TransformerPart(Protocol):
    """A DataTransformer. ``what``: ``datum``, ``datums``, ``mat``, ``mats``, ``blob``: the overload to call."""

    def init_rand(self) -> None: ...

    def words_ahead(self, count: int) -> list[int] | None:
        """The next words of its own stream, which stay there; None if it has no stream."""

    def rand(self, n: int) -> int: ...

    def infer(self, what: str, given: Any) -> Sequence[int]: ...

    def transform(self, what: str, given: Any, top: Any) -> tuple[list[int], list[Place]]:
        """Transform into a blob: the words that were drawn, and what was done with each item."""


class Pipeline(Pycaffe, Protocol):
    """The data pipeline in a process of its own, as it were.

    Blobs have the methods of ``refcaffe.Blob``, queues those of ``refcaffe.data.BlockingQueue``, readers those of
    ``refcaffe.data.DataReader``, layers those of ``refcaffe.layers.base.Layer``.
    """

    def words_ahead(self, count: int) -> list[int]:
        """The next words of this thread's stream, which stay there."""

    def set_solver(self, count: int, rank: int | None) -> None: ...

    def c_srand(self, seed: int) -> None:
        """Seed the C library's ``rand()``."""

    # --- databases and images

    def write_database(self, name: str, backend: str, records: Records) -> None: ...

    def read_database(self, name: str, backend: str) -> list[tuple[bytes, bytes]]: ...

    def pixels(self, data: np.ndarray, mode: int) -> np.ndarray | None:
        """What the codec makes of an image file's bytes; ``mode`` is OpenCV's."""

    def read_image(self, file: str, height: int, width: int, color: bool) -> np.ndarray | None: ...

    def recorded_codec(
        self, images: Mapping[bytes, np.ndarray], files: Mapping[str, np.ndarray]
    ) -> AbstractContextManager[dict[bytes | str, np.ndarray]]:
        """Inside the block the bytes of image files, and files by name, have these pixels where the engine's own ones

        are of their shape and type; gives those, of all that were decoded.
        """

    # --- parts

    def transformer(self, param: str, phase: str) -> TransformerPart: ...

    def datum(self, data: bytes) -> Any: ...

    def blob(self, shape: Sequence[int] | None) -> Any: ...

    def place_of(self, blob: Any) -> int:
        """A number for the memory in which a blob's newest data lie."""

    def layer(self, param: str) -> Any:
        """A layer, constructed but not set up; ``param`` is a LayerParameter's text."""

    def data_reader(self, param: str) -> Any: ...

    def queue(self) -> Any: ...

    # --- what threads do

    def bodies(self) -> int:
        """How many threads there are that read for DataReaders."""

    def sizes(self, part: Any) -> list[int]:
        """How much is in the queues of a reader, or of a layer and then of its reader: free, full."""

    def failure(self, part: Any) -> Any:
        """The Fatal that a thread of a net, layer or reader ended with; None if none has."""

    def on_other_thread(self, solver_count: int, function: Any) -> Any:
        """What a function gives on a new thread with its own solver count and an unseeded stream."""
