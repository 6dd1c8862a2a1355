"""The transformer of an original Caffe, through the program ``record_transform``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from conformance.engines.pipeline import Place, Records

if TYPE_CHECKING:
    from conformance.engines.original import Process

_FORCED = (-1, 1, 0)  # how an image may have been decoded: as it is, to color, to gray


def _hex(data: bytes) -> str:
    return data.hex() or "-"


def _floats(digits: str, shape: Sequence[int]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(digits.replace("-", "")), np.float32).reshape(shape).copy()


class Datum:
    """A serialized Datum; ``data`` is its field of that name."""

    def __init__(self, serialized: bytes) -> None:
        from refcaffe.proto import caffe_pb2

        self.serialized = serialized
        message = caffe_pb2.Datum.FromString(serialized)
        self.data = np.frombuffer(message.data, np.uint8)


class Blob:
    """Numbers that go to the program and come back; ``shape`` None is a blob without one."""

    def __init__(self, shape: Sequence[int] | None) -> None:
        self.shape: tuple[int, ...] = () if shape is None else tuple(shape)
        self._array = np.zeros(0 if shape is None else self.shape, np.float32)
        self._has_shape = shape is not None

    @property
    def count(self) -> int:
        return self._array.size if self._has_shape else 0

    def cpu_data(self) -> np.ndarray:
        return self._array

    def mutable_cpu_data(self) -> np.ndarray:
        return self._array

    def replace(self, array: np.ndarray) -> None:
        self.shape, self._array, self._has_shape = array.shape, array, True

    def word(self) -> str:
        return f"{','.join(map(str, self.shape)) if self._has_shape else '-'}:{_hex(self._array.tobytes())}"


def _word(what: str, thing: Any) -> str:
    if what.startswith("datum"):
        return _hex(thing.serialized)
    if what.startswith("mat"):
        rows, columns, *rest = thing.shape
        return f"{rows},{columns},{rest[0] if rest else 1},{8 * thing.itemsize}:{_hex(thing.tobytes())}"
    return thing.word()


class OriginalTransformer:
    """``conformance.engines.pipeline.TransformerPart``."""

    def __init__(self, process: Process, param: str, phase: str) -> None:
        self._process = process
        process.ask("new", phase, _hex(param.encode()))

    def init_rand(self) -> None:
        self._process.ask("init_rand")

    def words_ahead(self, count: int) -> list[int] | None:
        return json.loads(self._process.ask("ahead", count))

    def rand(self, n: int) -> int:
        return int(self._process.ask("rand", n))

    def _words(self, what: str, given: Any) -> list[str]:
        return [_word(what, thing) for thing in (given if what.endswith("s") else [given])]

    def infer(self, what: str, given: Any) -> Sequence[int]:
        return json.loads(self._process.ask("infer", what, *self._words(what, given)))

    def transform(self, what: str, given: Any, top: Any) -> tuple[list[int], list[Place]]:
        answer = json.loads(self._process.ask("transform", what, top.word(), *self._words(what, given)))
        shape, draws, places, out, changed = answer
        if shape or out != "-":
            top.replace(_floats(out, shape))
        if what == "blob":
            given.replace(_floats(changed, given.shape))
        return draws, [(mirror, h_off, w_off) for mirror, h_off, w_off in zip(*places)]


class OriginalPipeline:
    """What kinds transform and dbtool need of ``conformance.engines.pipeline.Pipeline``.

    The program is started when it is needed: in the folder where the case's files are by then.
    """

    def __init__(self, start: Callable[[], Process]) -> None:
        self._start = start

    @cached_property
    def _process(self) -> Process:
        return self._start()

    def close(self) -> None:
        if "_process" in vars(self):
            self._process.close()

    def set_random_seed(self, seed: int) -> None:
        self._process.ask("seed", seed)

    def words_ahead(self, count: int) -> list[int]:
        return json.loads(self._process.ask("next", count))

    def transformer(self, param: str, phase: str) -> OriginalTransformer:
        return OriginalTransformer(self._process, param, phase)

    def datum(self, data: bytes) -> Datum:
        return Datum(data)

    def blob(self, shape: Sequence[int] | None) -> Blob:
        return Blob(shape)

    def write_database(self, name: str, backend: str, records: Records) -> None:
        """By the databases' own libraries: a file is a file."""
        from refcaffe import data

        data.write(name, records, backend.lower())

    def read_database(self, name: str, backend: str) -> list[tuple[bytes, bytes]]:
        from refcaffe import data

        return list(data.read(name, backend.lower()))

    def pixels(self, data: np.ndarray, mode: int) -> np.ndarray | None:
        """What Caffe's codec makes of an image file's bytes; ``mode`` is OpenCV's: -1 as it is, 0 gray, 1 color."""
        from refcaffe.proto import caffe_pb2

        encoded = _hex(caffe_pb2.Datum(data=data.tobytes(), encoded=True).SerializeToString())
        rows, columns, channels, size, digits = json.loads(self._process.ask("decode", mode, encoded))
        found = np.frombuffer(bytes.fromhex(digits.replace("-", "")), f"u{size}").reshape(rows, columns, channels)
        return found[..., 0] if channels == 1 else found

    @contextmanager
    def recorded_codec(
        self, images: Mapping[bytes, np.ndarray], files: Mapping[str, np.ndarray]
    ) -> Iterator[dict[bytes | str, np.ndarray]]:
        """The original decodes for itself; gives its own pixels, in the form (color or gray) of those recorded."""
        own: dict[bytes | str, np.ndarray] = {}
        for data, recorded in images.items():
            for mode in _FORCED:
                pixels = self.pixels(np.frombuffer(data, np.uint8), mode)
                if pixels is not None and (pixels.shape, pixels.dtype) == (recorded.shape, recorded.dtype):
                    own[data] = pixels
                    break
        yield own

    def take_log(self) -> list[tuple[str, str, str]]:
        return [(level, file, text) for level, file, text in self._process.log() if level in "WE"]
