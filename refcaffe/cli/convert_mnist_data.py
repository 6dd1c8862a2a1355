"""``refcaffe convert_mnist_data``: the files of MNIST into a database."""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import IO

from refcaffe.checks import Checker, CheckError
from refcaffe.cli.flags import Flag, Flags
from refcaffe.cli.progress import counting
from refcaffe.cli.tool import Tool
from refcaffe.data import create
from refcaffe.proto import caffe_pb2

_check = Checker("convert_mnist_data.cpp")
_log = logging.getLogger("refcaffe.convert_mnist_data.cpp")

_TOOL = Tool(
    "examples/mnist/convert_mnist_data.cpp",
    "make a database of MNIST's images and labels, in their uncompressed files.\n"
    "usage: convert_mnist_data [FLAGS] IMAGES LABELS DB_NAME",
    (Flag("backend", "lmdb", "The kind of database: lmdb or leveldb."),),
    fewest=3,
    most=3,
    wrong=0,
)


def run(words: Sequence[str]) -> int:
    """``convert_mnist_data [FLAGS] IMAGES LABELS DB_NAME``. The database appears when it is complete."""
    return _TOOL.run(words, _convert)


def _convert(flags: Flags) -> None:
    images_path, labels_path, target = flags.words
    with _opened(images_path, "image_file") as images, _opened(labels_path, "label_file") as labels:
        _check.eq(_number(images), 2051, "magic == 2051", "Incorrect image file magic.")
        _check.eq(_number(labels), 2049, "magic == 2049", "Incorrect label file magic.")
        count = _number(images)
        _check.eq(count, _number(labels), "num_items == num_labels")
        rows, columns = _number(images), _number(images)
        with create(target, flags.backend) as writer, counting("converting", count) as done:
            _log.info("A total of %d items.", count)
            _log.info("Rows: %d Cols: %d", rows, columns)
            datum = caffe_pb2.Datum(channels=1, height=rows, width=columns)
            for i in range(count):
                datum.data = _bytes(images, rows * columns)
                (datum.label,) = struct.unpack("b", _bytes(labels, 1))
                writer.put(b"%08d" % i, datum.SerializeToString())
                done()
    _log.info("Processed %d files.", count)


def _opened(path: str, name: str) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        failed = CheckError(f"Check failed: {name} Unable to open file {path}", _check.file)
        raise failed.within(str(error)) from error


def _bytes(file: IO[bytes], count: int) -> bytes:
    data = file.read(count)
    if len(data) < count:
        _check.fatal(f"{file.name} ends too soon.")
    return data


def _number(file: IO[bytes]) -> int:
    return int.from_bytes(_bytes(file, 4), "big")
