"""``refcaffe convert_imageset``: a database of the images in a list."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe import context
from refcaffe.checks import Checker, CheckError
from refcaffe.cli.flags import Flag, Flags
from refcaffe.cli.progress import counting
from refcaffe.cli.tool import Tool
from refcaffe.data import create, decode
from refcaffe.data.db import Writer
from refcaffe.data.image_list import Line, read_list
from refcaffe.data.workers import in_advance
from refcaffe.proto import caffe_pb2

_check = Checker("convert_imageset.cpp")
_log = logging.getLogger("refcaffe.convert_imageset.cpp")

_COMMIT_EVERY = 1000

_TOOL = Tool(
    "tools/convert_imageset.cpp",
    "make a database of the images in a list.\n"
    "usage: convert_imageset [FLAGS] ROOTFOLDER/ LISTFILE DB_NAME\n"
    "A line of LISTFILE is the name of a file, to which ROOTFOLDER/ is prefixed, a blank, and its label.",
    (
        Flag("backend", "lmdb", "The kind of database: lmdb or leveldb."),
        Flag("check_size", False, "Refuse images that are not of the first one's size."),
        Flag("encode_type", "", "Store image files of this type, as png or jpg; implies encoded."),
        Flag("encoded", False, "Store image files, not their pixels."),
        Flag("gray", False, "Make one channel of all images."),
        Flag("resize_height", 0, "With resize_width: resize all images to this height."),
        Flag("resize_width", 0, "With resize_height: resize all images to this width."),
        Flag("shuffle", False, "Shuffle the lines of the list."),
    ),
    fewest=3,
    most=None,
)


def run(words: Sequence[str]) -> int:
    """``convert_imageset [FLAGS] ROOTFOLDER/ LISTFILE DB_NAME``. The database appears when it is complete."""
    return _TOOL.run(words, _convert)


def _convert(flags: Flags) -> None:
    root_folder, source, target = flags.words[:3]
    lines = read_list(source)
    if flags.shuffle:
        _log.info("Shuffling data")
        context.current().stream.shuffle(lines)
    _log.info("A total of %d images.", len(lines))
    if flags.encode_type and not flags.encoded:
        _log.info("encode_type specified, assuming encoded=true.")
    with create(target, flags.backend) as writer, counting("converting", len(lines)) as done:
        _write(flags, root_folder, lines, writer, done)


def _write(flags: Flags, root_folder: str, lines: list[Line], writer: Writer, done: Any) -> None:
    count, size = 0, None
    datums = in_advance(lines, lambda line: _read(flags, root_folder + line.name, line))
    for number, line in enumerate(lines):
        if _guesses(flags) and "." not in line.name:
            _log.warning("Failed to guess the encoding of '%s'", line.name)
        datum = next(datums)
        done()
        if datum is None:
            decode.could_not_open(root_folder + line.name)
            continue
        if flags.check_size and size is None:
            size = datum.channels * datum.height * datum.width
        elif flags.check_size:
            _check.eq(len(datum.data), size, "data.size() == data_size", f"Incorrect data field size {len(datum.data)}")
        writer.put(b"%08d_%s" % (number, os.fsencode(line.name)), datum.SerializeToString())
        count += 1
        if count % _COMMIT_EVERY == 0:
            writer.commit()
            _log.info("Processed %d files.", count)
    if count % _COMMIT_EVERY:
        writer.commit()
        _log.info("Processed %d files.", count)


def _read(flags: Flags, path: str, line: Line) -> caffe_pb2.Datum | None:
    """The record of an image; None if it cannot be read."""
    encoding = _encoding(flags, line.name)
    height, width = max(0, flags.resize_height), max(0, flags.resize_width)
    pixels = decode.read_image(path, height, width, color=not flags.gray)
    if pixels is None:
        return None
    datum = caffe_pb2.Datum(label=line.label)
    if not encoding:
        planes = pixels[np.newaxis] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
        datum.channels, datum.height, datum.width = planes.shape
        datum.data, datum.encoded = planes.tobytes(), False
        return datum
    datum.encoded = True
    if not height and not width and _is_encoded_so(path, encoding):
        with open(path, "rb") as file:
            datum.data = file.read()
    else:
        datum.data = _encode(pixels, encoding, path)
    return datum


def _guesses(flags: Flags) -> bool:
    """Whether an image's name decides what type of file is stored."""
    return flags.encoded and not flags.encode_type


def _encoding(flags: Flags, name: str) -> str:
    """The type of file to store; empty: none."""
    if not _guesses(flags):
        return flags.encode_type
    ending = name.rpartition(".")[2]
    return (f".{ending}" if context.current_build().reader_era else ending).lower()


def _is_encoded_so(path: str, encoding: str) -> bool:
    _, dot, ending = path.rpartition(".")
    # The Caffe of DataReader compares with the dot, which --encode_type does not have.
    ending = f".{ending}" if dot and context.current_build().reader_era else ending
    return ending.lower() == encoding.lower() or (encoding.lower(), ending.lower()) == ("jpg", "jpeg")


def _encode(pixels: NDArray[Any], encoding: str, path: str) -> bytes:
    cv2 = decode.opencv()
    try:
        done, data = cv2.imencode(f".{encoding.lstrip('.')}", pixels)
    except cv2.error:
        done = False
    if not done:
        raise CheckError(f"Could not encode {path} as '{encoding}'.", "io.cpp")
    return bytes(data)
