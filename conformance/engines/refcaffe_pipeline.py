"""The data pipeline of refcaffe."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from conformance.engines.pipeline import Place, Records
from conformance.engines.refcaffe_nets import RefcaffeNet, RefcaffePycaffe
from refcaffe import context, data
from refcaffe.blob import Blob
from refcaffe.data import decode, reader
from refcaffe.data.transformer import DataTransformer
from refcaffe.layers.base import make
from refcaffe.proto import caffe_pb2, io
from refcaffe.rng import c_library
from refcaffe.syncedmem import Head


class _Transformer(DataTransformer):
    """Notes what it draws, and where it crops and mirrors."""

    drawn: list[int]
    places: list[Place]

    def rand(self, n: int) -> int:
        word = self.stream.peek() if self.stream is not None else 0
        value = super().rand(n)
        self.drawn.append(word)
        return value

    def _place(self, *args: Any) -> Any:
        place = super()._place(*args)
        self.places.append((place.mirror if place.width > 1 else None, place.h_off, place.w_off))
        return place


class RefcaffeTransformer:
    """``conformance.engines.pipeline.TransformerPart``."""

    def __init__(self, param: str, phase: str) -> None:
        message = io.parse_text(param, caffe_pb2.TransformationParameter, "param")
        self._transformer = _Transformer(message, caffe_pb2.Phase.Value(phase))
        self._start()

    def _start(self) -> None:
        self._transformer.drawn, self._transformer.places = [], []

    def init_rand(self) -> None:
        self._transformer.init_rand()

    def words_ahead(self, count: int) -> list[int] | None:
        stream = self._transformer.stream
        return None if stream is None else stream.ahead(count).tolist()

    def rand(self, n: int) -> int:
        return self._transformer.rand(n)

    def infer(self, what: str, given: Any) -> Sequence[int]:
        return getattr(self._transformer, f"infer_{what}")(given)

    def transform(self, what: str, given: Any, top: Any) -> tuple[list[int], list[Place]]:
        self._start()
        getattr(self._transformer, f"transform_{what}")(given, top)
        return self._transformer.drawn, self._transformer.places


class RefcaffePipeline(RefcaffePycaffe):
    """``conformance.engines.pipeline.Pipeline``."""

    def __enter__(self) -> RefcaffePipeline:
        super().__enter__()
        return self

    def words_ahead(self, count: int) -> list[int]:
        return context.current().stream.ahead(count).tolist()

    def set_solver(self, count: int, rank: int | None) -> None:
        here = context.current()
        here.solver_count = count
        here.solver_rank = here.solver_rank if rank is None else rank

    def c_srand(self, seed: int) -> None:
        c_library.srand(seed)

    def write_database(self, name: str, backend: str, records: Records) -> None:
        data.write(name, records, backend.lower())

    def read_database(self, name: str, backend: str) -> list[tuple[bytes, bytes]]:
        return list(data.read(name, backend.lower()))

    def pixels(self, data: np.ndarray, mode: int) -> np.ndarray | None:
        return decode.pixels_of(data, mode)

    def read_image(self, file: str, height: int, width: int, color: bool) -> np.ndarray | None:
        return decode.read_image(file, height, width, color)

    @contextmanager
    def recorded_codec(
        self, images: Mapping[bytes, np.ndarray], files: Mapping[str, np.ndarray]
    ) -> Iterator[dict[bytes | str, np.ndarray]]:
        decoded: dict[bytes | str, np.ndarray] = {}
        own = decode.pixels_of, decode.read_image

        def chosen(recorded: Mapping[Any, np.ndarray], key: bytes | str, pixels: Any) -> Any:
            theirs = recorded.get(key)
            if pixels is None or theirs is None or pixels.shape != theirs.shape or pixels.dtype != theirs.dtype:
                return pixels
            decoded[key] = pixels
            return theirs

        def pixels_of(data: Any, mode: int) -> Any:
            return chosen(images, data.tobytes(), own[0](data, mode))

        def read_image(path: str, *args: Any, **kwargs: Any) -> Any:
            return chosen(files, os.path.normpath(path), own[1](path, *args, **kwargs))

        decode.pixels_of, decode.read_image = pixels_of, read_image
        try:
            yield decoded
        finally:
            decode.pixels_of, decode.read_image = own

    def transformer(self, param: str, phase: str) -> RefcaffeTransformer:
        return RefcaffeTransformer(param, phase)

    def datum(self, data_: bytes) -> Any:
        return data.parse(data_)

    def blob(self, shape: Sequence[int] | None) -> Blob:
        return Blob(shape)

    def place_of(self, blob: Blob) -> int:
        memory = blob.data_memory()
        newest = memory.gpu_data() if memory.head is Head.HEAD_AT_GPU else memory.cpu_data()
        return newest.address if newest is not None else 0

    def layer(self, param: str) -> Any:
        return make(io.parse_text(param, caffe_pb2.LayerParameter, "layer"))

    def data_reader(self, param: str) -> Any:
        return data.DataReader(io.parse_text(param, caffe_pb2.LayerParameter, "layer"))

    def queue(self) -> Any:
        return data.BlockingQueue()

    def bodies(self) -> int:
        return reader.bodies()

    def sizes(self, part: Any) -> list[int]:
        queues: list[int] = []
        owner: Any
        for owner in (part, getattr(part, "prefetcher", None), getattr(part, "reader", None)):
            if hasattr(owner, "full"):
                queues += [owner.free.size(), owner.full.size()]
        return queues

    def failure(self, part: Any) -> Any:
        layers = part.wrapped.all_layers if isinstance(part, RefcaffeNet) else [part]
        owners = [owner for layer in layers for owner in (layer, getattr(layer, "prefetcher", None))]
        errors = [getattr(owner, "error", None) for owner in owners]
        return next((error for error in errors if error is not None), None)

    def on_other_thread(self, solver_count: int, function: Any) -> Any:
        results = []

        def run() -> None:
            context.current().solver_count = solver_count
            results.append(function())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return results[0]
