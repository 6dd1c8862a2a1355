"""Between arrays, Caffe's messages, image files and the blobs of a net. Colors are R, G, B here, values 0 ... 1."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import BlobProto, Datum

Ints = Sequence[int] | np.ndarray

_LEGACY_FIELDS = ("num", "channels", "height", "width")

# --- messages


def _floats(values: Any) -> NDArray[np.float64]:
    return np.fromiter(values, np.float64, len(values))


def blobproto_to_array(blob: BlobProto, return_diff: bool = False) -> NDArray[np.float64]:
    """The data of a BlobProto, or its diff. ValueError if it is not as many values as the shape says."""
    values = _floats(blob.diff if return_diff else blob.data)
    if any(map(blob.HasField, _LEGACY_FIELDS)):
        return values.reshape([getattr(blob, field) for field in _LEGACY_FIELDS])
    return values.reshape(tuple(blob.shape.dim))


def array_to_blobproto(arr: np.ndarray, diff: np.ndarray | None = None) -> BlobProto:
    """A BlobProto of the array's shape and values, and of ``diff``'s values, as float32."""
    blob = caffe_pb2.BlobProto()
    blob.shape.dim.extend(arr.shape)
    blob.data.extend(arr.astype(float).ravel().tolist())
    if diff is not None:
        blob.diff.extend(diff.astype(float).ravel().tolist())
    return blob


def arraylist_to_blobprotovector_str(arraylist: Iterable[np.ndarray]) -> bytes:
    """The bytes of a BlobProtoVector of the arrays."""
    vector = caffe_pb2.BlobProtoVector(blobs=map(array_to_blobproto, arraylist))
    return bytes(vector.SerializeToString())


def blobprotovector_str_to_arraylist(str: bytes) -> list[NDArray[np.float64]]:
    """The arrays of a BlobProtoVector's bytes."""
    return [blobproto_to_array(blob) for blob in caffe_pb2.BlobProtoVector.FromString(str).blobs]


def array_to_datum(arr: np.ndarray, label: int | None = None) -> Datum:
    """A Datum of an array (channels, height, width): of bytes if that is uint8, else of floats."""
    if arr.ndim != 3:
        raise ValueError("Incorrect array shape.")
    channels, height, width = arr.shape
    datum = caffe_pb2.Datum(channels=channels, height=height, width=width)
    if arr.dtype == np.uint8:
        datum.data = arr.tobytes()
    else:
        datum.float_data.extend(arr.astype(float).ravel().tolist())
    if label is not None:
        datum.label = int(label)
    return datum


def datum_to_array(datum: Datum) -> NDArray[Any]:
    """The values of a raw Datum, (channels, height, width): uint8 if it has bytes, else float64."""
    values = np.frombuffer(datum.data, np.uint8).copy() if len(datum.data) else _floats(datum.float_data)
    return values.reshape(datum.channels, datum.height, datum.width)


# --- databases


def read_lmdb(source: str | os.PathLike[str]) -> Iterator[tuple[bytes, Datum]]:
    """The records of an LMDB database, (key, Datum), in the order of the keys. CheckError if it is damaged."""
    from refcaffe.data import db

    for key, value in db.read(os.fspath(source)):
        yield key, caffe_pb2.Datum.FromString(value)


def write_lmdb(source: str | os.PathLike[str], datums: Iterable[Datum]) -> None:
    """Make an LMDB database of the records, with keys 00000000, 00000001 ... CheckError if there is one already."""
    from refcaffe.data import db

    db.write(os.fspath(source), ((b"%08d" % i, datum.SerializeToString()) for i, datum in enumerate(datums)))


# --- image files


def load_image(filename: str | os.PathLike[str], color: bool = True) -> NDArray[np.float32]:
    """The pixels of an image file, float32 in 0 ... 1: (height, width, 3), or with ``color`` false (height, width, 1).

    Transparency is dropped. OSError if the file cannot be read, ValueError if it holds no image.
    """
    import cv2

    data = np.fromfile(filename, np.uint8)
    try:
        pixels = cv2.imdecode(data, cv2.IMREAD_UNCHANGED) if data.size else None
    except cv2.error:
        pixels = None
    if pixels is None:
        raise ValueError(f"{os.fspath(filename)} is not an image that OpenCV can read")
    scaled: Any = pixels / np.float64(np.iinfo(str(pixels.dtype)).max) if pixels.dtype.kind in "iu" else pixels
    if scaled.ndim == 2:
        image = scaled[:, :, None].repeat(3 if color else 1, axis=2)
    else:
        image = scaled[:, :, 2::-1]
        if not color:
            image = image @ np.array([0.2125, 0.7154, 0.0721])[:, None]
    return np.ascontiguousarray(image, np.float32)


def _taps(size: int, new_size: int, order: int, aligned: bool) -> list[tuple[NDArray[np.intp], NDArray[np.float64]]]:
    """For each new pixel, which old ones it is made of, and by which weights. Index ``size`` stands for the outside.

    Pixels are areas whose middles are mapped; or, ``aligned``, points of which the first and last are kept.
    """
    places = np.arange(new_size, dtype=np.float64)
    if aligned:
        places *= (size - 1) / max(new_size - 1, 1)
    else:
        places = (places + 0.5) * (size / max(new_size, 1)) - 0.5
    if order == 0:
        nearest = np.floor(places + 0.5).astype(np.intp)
        return [(np.clip(nearest, 0, size - 1), np.ones(new_size))]
    low = np.floor(places).astype(np.intp)
    weight = places - low
    return [(np.where((at >= 0) & (at < size), at, size), w) for at, w in ((low, 1 - weight), (low + 1, weight))]


def resize_image(im: np.ndarray, new_dims: Ints, interp_order: int = 1) -> NDArray[np.float32]:
    """An image (height, width, channels) brought to (new_dims[0], new_dims[1], channels), float32.

    ``interp_order`` is 1, linear between pixels, or 0, the nearest one. Images of 1 or 3 channels are stretched by
    their areas, and beyond their border is their lowest value; others keep their corner pixels, as upstream has it.
    """
    if interp_order not in (0, 1):
        raise ValueError(f"interp_order is {interp_order}: refcaffe has 0 (nearest) and 1 (linear)")
    height, width, channels = im.shape
    aligned = channels not in (1, 3)
    outside = 0.0 if aligned or not im.size else float(im.min())
    image = np.full((height + 1, width + 1, channels), outside)
    image[:height, :width] = im
    rows: Any = sum(image[at] * w[:, None, None] for at, w in _taps(height, int(new_dims[0]), interp_order, aligned))
    taps = _taps(width, int(new_dims[1]), interp_order, aligned)
    resized: Any = sum(rows[:, at] * w[:, None] for at, w in taps)
    return np.asarray(resized, np.float32)


def oversample(images: Sequence[np.ndarray] | np.ndarray, crop_dims: Ints) -> NDArray[np.float32]:
    """Of each image (height, width, channels) its four corners and its center, then these mirrored.

    Returns (10 * n, crop_dims[0], crop_dims[1], channels).
    """
    height, width, channels = images[0].shape
    crop_height, crop_width = (int(size) for size in crop_dims)
    below, right = height - crop_height, width - crop_width
    if min(below, right) < 0:
        raise ValueError(f"crops of {crop_height} x {crop_width} out of images of {height} x {width}")
    places = [(0, 0), (0, right), (below, 0), (below, right), (below // 2, right // 2)]
    crops = np.empty((len(images), 2, len(places), crop_height, crop_width, channels), np.float32)
    for image, of_image in zip(images, crops, strict=True):
        for i, (y, x) in enumerate(places):
            of_image[0, i] = image[y : y + crop_height, x : x + crop_width]
    crops[:, 1] = crops[:, 0, :, :, ::-1]
    return crops.reshape(-1, crop_height, crop_width, channels)


# --- inputs of nets


class Transformer:
    """Brings images to the form of a net's inputs, and back: size, order of axes and channels, scale, mean.

    ``inputs`` has the shape of each input blob by name, as in ``{"data": net.blobs["data"].data.shape}``.
    """

    def __init__(self, inputs: dict[str, Sequence[int]]) -> None:
        self.inputs = inputs
        self.transpose: dict[str, Sequence[int]] = {}
        self.channel_swap: dict[str, Sequence[int]] = {}
        self.raw_scale: dict[str, float] = {}
        self.mean: dict[str, np.ndarray] = {}
        self.input_scale: dict[str, float] = {}

    def _check_input(self, in_: str) -> None:
        if in_ not in self.inputs:
            raise ValueError(f"{in_} is not one of the net inputs: {self.inputs}")

    def preprocess(self, in_: str, data: np.ndarray) -> NDArray[np.float32]:
        """An image (height, width, channels) as the input wants it, usually (channels, height, width).

        In this order: resize, transpose, swap channels, times raw_scale, minus mean, times input_scale.
        """
        self._check_input(in_)
        image = data.astype(np.float32)
        size = tuple(self.inputs[in_][2:])
        if image.shape[:2] != size:
            image = resize_image(image, size)
        if in_ in self.transpose:
            image = image.transpose(self.transpose[in_])
        if in_ in self.channel_swap:
            image = image[list(self.channel_swap[in_])]
        if in_ in self.raw_scale:
            image *= self.raw_scale[in_]
        if in_ in self.mean:
            image -= self.mean[in_]
        if in_ in self.input_scale:
            image *= self.input_scale[in_]
        return image

    def deprocess(self, in_: str, data: np.ndarray) -> np.ndarray:
        """The way back, but for the size; ``data`` may have a batch axis of one."""
        self._check_input(in_)
        image = data.copy().squeeze()
        if in_ in self.input_scale:
            image /= self.input_scale[in_]
        if in_ in self.mean:
            image += self.mean[in_]
        if in_ in self.raw_scale:
            image /= self.raw_scale[in_]
        if in_ in self.channel_swap:
            image = image[np.argsort(self.channel_swap[in_])]
        if in_ in self.transpose:
            image = image.transpose(np.argsort(self.transpose[in_]))
        return image

    def set_transpose(self, in_: str, order: Sequence[int]) -> None:
        """The order of axes, (2, 0, 1) to bring channels to the front."""
        self._check_input(in_)
        if len(order) != len(self.inputs[in_]) - 1:
            raise ValueError("Transpose order needs to have the same number of dimensions as the input.")
        self.transpose[in_] = order

    def set_channel_swap(self, in_: str, order: Sequence[int]) -> None:
        """The order of channels, (2, 1, 0) for B, G, R; they are the first axis by then."""
        self._check_input(in_)
        if len(order) != self.inputs[in_][1]:
            raise ValueError("Channel swap needs to have the same number of dimensions as the input channels.")
        self.channel_swap[in_] = order

    def set_raw_scale(self, in_: str, scale: float) -> None:
        """A factor taken before the mean is subtracted: 255 for nets that were trained on bytes."""
        self._check_input(in_)
        self.raw_scale[in_] = scale

    def set_mean(self, in_: str, mean: np.ndarray) -> None:
        """What is subtracted: a value per channel, or an array of the input's form; of another size it is resized."""
        self._check_input(in_)
        channels, *size = self.inputs[in_][1:]
        if mean.ndim == 1:
            if len(mean) != channels:
                raise ValueError("Mean channels incompatible with input.")
            mean = mean[:, None, None]
        else:
            if mean.ndim not in (2, 3):
                raise ValueError("Mean shape invalid")
            whole = mean.reshape(-1, *mean.shape[-2:])
            if whole.shape != (channels, *size):
                lowest, span = whole.min(), whole.max() - whole.min()
                normal = (whole - lowest) / (span or 1)
                mean = resize_image(normal.transpose(1, 2, 0), size).transpose(2, 0, 1) * span + lowest
        self.mean[in_] = mean

    def set_input_scale(self, in_: str, scale: float) -> None:
        """A factor taken last."""
        self._check_input(in_)
        self.input_scale[in_] = scale
