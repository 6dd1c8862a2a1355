"""Where images come from in the benchmarks of prefetching, and three ways to make batches of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import refcaffe
from refcaffe.data import num_workers, read, serialize, set_num_workers, write
from refcaffe.kernels.parallel import for_each
from refcaffe.proto import caffe_pb2, io

SIZE, CROP, BATCH, IMAGES = 256, 227, 64, 512
MEAN = np.array([104, 117, 123], np.float32)

_VALUES = f"crop_size: {CROP} mirror: true mean_value: 104 mean_value: 117 mean_value: 123"
_FILE = f'crop_size: {CROP} mirror: true mean_file: "FOLDER/mean.binaryproto"'
SOURCES = {  # what is read, and its transform_param
    "a: raw, crop, mirror, mean values": ("raw", _VALUES),
    "b: raw, crop, mirror, mean file": ("raw", _FILE),
    "c: JPEG, crop, mirror, mean values": ("jpeg", _VALUES),
    "d: raw, nothing": ("raw", ""),
    "e: ImageData, JPEG files, as c": ("files", _VALUES),
}


def picture(rng: np.random.Generator) -> np.ndarray:
    """Something with the spectrum of a photograph: (H, W, 3), uint8; about 20 kB as JPEG."""
    smooth = cv2.resize(rng.integers(0, 256, (8, 8, 3)).astype(np.float32), (SIZE, SIZE), interpolation=cv2.INTER_CUBIC)
    fine = cv2.resize(rng.integers(-25, 26, (SIZE // 2, SIZE // 2, 3)).astype(np.float32), (SIZE, SIZE))
    return np.clip(smooth + fine, 0, 255).astype(np.uint8)


def make(folder: Path) -> None:
    """The databases, files and mean of all sources."""
    rng = np.random.default_rng(1)
    pictures = [picture(rng) for _ in range(IMAGES)]
    files = [bytes(cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]) for image in pictures]
    keys = [b"%08d" % i for i in range(IMAGES)]
    write(str(folder / "raw"), ((k, serialize(p.transpose(2, 0, 1), 1)) for k, p in zip(keys, pictures, strict=True)))
    datums = (caffe_pb2.Datum(encoded=True, label=1, data=data).SerializeToString() for data in files)
    write(str(folder / "jpeg"), zip(keys, datums, strict=True))
    for key, data in zip(keys, files, strict=True):
        (folder / f"{key.decode()}.jpg").write_bytes(data)
    (folder / "list.txt").write_text("".join(f"{key.decode()}.jpg 1\n" for key in keys))
    mean = caffe_pb2.BlobProto(num=1, channels=3, height=SIZE, width=SIZE)
    mean.data.extend(np.repeat(MEAN, SIZE * SIZE).tolist())
    io.write_binary(mean, str(folder / "mean.binaryproto"))


def net_of(source: str, folder: Path) -> Path:
    """The definition of a net that has only the layer that reads a source."""
    what, transform = SOURCES[source]
    if what == "files":
        files = 'source: "FOLDER/list.txt" root_folder: "FOLDER/"'
        kind, param = "ImageData", f"image_data_param {{ {files} batch_size: {BATCH} }}"
    else:
        kind, param = "Data", f'data_param {{ source: "FOLDER/{what}" backend: LMDB batch_size: {BATCH} }}'
    text = f'name: "read" layer {{ name: "data" type: "{kind}" top: "data" top: "label" {param}'
    path = folder / f"{source[0]}.prototxt"
    path.write_text(f"{text} transform_param {{ {transform} }} }}".replace("FOLDER", str(folder)))
    return path


@contextmanager
def batches(source: str, folder: Path, workers: int) -> Iterator[Callable[[], Any]]:
    """A function that waits for the next batch of the layer."""
    before = num_workers()
    set_num_workers(workers)
    net = refcaffe.Net(str(net_of(source, folder)), refcaffe.TRAIN)
    try:
        yield net.forward
    finally:
        net.close()
        set_num_workers(before)


def loop(source: str, folder: Path) -> Callable[[], Any]:
    """A function that makes a batch as one would write it by hand, with protobuf, OpenCV and NumPy, on one thread."""
    what, transform = SOURCES[source]
    rng = np.random.default_rng(1)
    mean = np.broadcast_to(MEAN[:, None, None], (3, SIZE, SIZE)).copy()
    side = CROP if transform else SIZE
    batch = np.empty((BATCH, 3, side, side), np.float32)

    def images() -> Iterator[np.ndarray]:
        while True:
            if what == "files":
                for name in sorted(folder.glob("*.jpg")):
                    yield cv2.imread(str(name)).transpose(2, 0, 1)
            for _, value in read(str(folder / what)) if what != "files" else ():
                datum = caffe_pb2.Datum.FromString(value)
                data = np.frombuffer(datum.data, np.uint8)
                yield cv2.imdecode(data, 1).transpose(2, 0, 1) if datum.encoded else data.reshape(3, SIZE, SIZE)

    source_of_images = images()

    def make_batch() -> None:
        for out in batch:
            image = next(source_of_images)
            if transform:
                y, x = rng.integers(0, SIZE - CROP + 1, 2)
                part = image[:, y : y + CROP, x : x + CROP] - mean[:, y : y + CROP, x : x + CROP]
                out[...] = part[:, :, ::-1] if rng.integers(2) else part
            else:
                out[...] = image

    return make_batch


def limit(source: str, folder: Path) -> Callable[[], Any]:
    """A function that does on all threads the least that a batch needs: decode its files, or copy its bytes."""
    what, transform = SOURCES[source]
    if what != "raw":
        files = [np.fromfile(path, np.uint8) for path in sorted(folder.glob("*.jpg"))[:BATCH]]
        return lambda: for_each(BATCH, lambda i: cv2.imdecode(files[i], 1))
    count = (CROP if transform else SIZE) ** 2 * 3
    moved = (count + 4 * count) // 2  # of so many bytes a copy reads and writes as many as are read and written here
    pairs = [(np.ones((BATCH, moved), np.uint8), np.ones((BATCH, moved), np.uint8)) for _ in range(4)]  # not in a cache
    turn = 0

    def copy() -> None:
        nonlocal turn
        turn += 1
        given, to = pairs[turn % 4]
        for_each(BATCH, lambda i: np.copyto(to[i], given[i]))

    return copy
