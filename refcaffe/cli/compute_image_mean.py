"""``refcaffe compute_image_mean``: the mean image of a database."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe import context
from refcaffe.checks import Checker
from refcaffe.cli.flags import Flag, Flags
from refcaffe.cli.progress import counting
from refcaffe.cli.tool import Tool
from refcaffe.data import Datum, decode, open_cursor, parse
from refcaffe.data.db import Cursor
from refcaffe.data.records import Origin
from refcaffe.proto import caffe_pb2, io
from refcaffe.telling import telling

_check = Checker("compute_image_mean.cpp")
_log = logging.getLogger("refcaffe.compute_image_mean.cpp")

_SAY_EVERY = 10000

_TOOL = Tool(
    "tools/compute_image_mean.cpp",
    "compute the mean image of a database, and write it to a file.\n"
    "usage: compute_image_mean [FLAGS] INPUT_DB [OUTPUT_FILE]",
    (Flag("backend", "lmdb", "The kind of database: lmdb or leveldb."),),
    fewest=1,
    most=2,
)


def run(words: Sequence[str]) -> int:
    """``compute_image_mean [FLAGS] INPUT_DB [OUTPUT_FILE]``."""
    return _TOOL.run(words, _compute)


def _compute(flags: Flags) -> None:
    source, *targets = flags.words
    cursor = open_cursor(source, flags.backend)
    try:
        if not cursor.valid:
            _check.fatal(f"There are no records in '{source}'.")
        first = _decoded(parse(cursor.value()))
        if first is not None:
            _log.info("Decoding Datum")
        shape = parse(cursor.value()).shape if first is None else first.shape
        total, count = _sum(cursor, source, shape)
    finally:
        cursor.close()
    mean = total / np.float32(count)
    if targets:
        _log.info("Write to %s", targets[0])
        proto = caffe_pb2.BlobProto(num=1, channels=shape[0], height=shape[1], width=shape[2])
        proto.data.extend(mean)
        io.write_binary(proto, targets[0])
    _log.info("Number of channels: %d", shape[0])
    blank = "" if context.current_build().reader_era else " "
    for channel, values in enumerate(mean.reshape(shape[0], -1)):
        total_of_channel = np.cumsum(values)[-1] if values.size else np.float32(0)  # one after the other, rounded
        _log.info("mean_value channel [%d]:%s%g", channel, blank, total_of_channel / np.float32(values.size))


def _sum(cursor: Cursor, source: str, shape: tuple[int, ...]) -> tuple[NDArray[np.float32], int]:
    """The sums of all records, each rounded to float after every record, and their number."""
    total = np.zeros(int(np.prod(shape)), np.float32)
    count = 0
    _log.info("Starting iteration")
    with counting("adding up") as done, np.errstate(all="ignore"):
        while cursor.valid:
            with telling(lambda number=count: str(Origin(source, number, cursor.key()))):  # type: ignore[misc]
                total += _values(parse(cursor.value()), total.size)
            count += 1
            done()
            if count % _SAY_EVERY == 0:
                _log.info("Processed %d files.", count)
            cursor.next()
    if count % _SAY_EVERY:
        _log.info("Processed %d files.", count)
    return total, count


def _decoded(datum: Datum) -> NDArray[Any] | None:
    """An encoded record's pixels, (C, H, W); None for a raw one."""
    if not datum.encoded:
        return None
    pixels = decode.decode(datum.data, decode.NATIVE)
    text = "Image data type must be unsigned byte"
    Checker("io.cpp")(pixels.dtype == np.uint8, "cv_img.depth() == CV_8U", text)
    return pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _values(datum: Datum, wanted: int) -> NDArray[Any]:
    """A record's values, flat; only their number is looked at."""
    pixels = _decoded(datum)
    data = datum.data if pixels is None else pixels.reshape(-1)
    floats = datum.float_data if pixels is None else datum.float_data[:0]
    size = max(data.size, floats.size)
    _check.eq(size, wanted, "size_in_datum == data_size", f"Incorrect data field size {size}")
    if data.size:
        _check.eq(data.size, size, "data.size() == size_in_datum")
        return data
    return floats
