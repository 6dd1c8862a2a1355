"""DataTransformer: from records and images to the floats of a batch: decode, mirror, crop, mean, scale."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.data.datum import Datum
from refcaffe.data.decode import COLOR, GRAY, NATIVE, decode
from refcaffe.data.means import Means
from refcaffe.data.place import Place
from refcaffe.kernels.blas import scal
from refcaffe.kernels.parallel import scratch
from refcaffe.kernels.transform import apart, less_image, less_values
from refcaffe.proto import caffe_pb2
from refcaffe.rng import Stream

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import TransformationParameter

Shape = tuple[int, int, int, int]  # of a blob, as num, channels, height, width
Mat = NDArray[Any]  # an image, (H, W) or (H, W, C), as OpenCV has it

_check = Checker("data_transformer.cpp")
_log = logging.getLogger("refcaffe.data_transformer.cpp")


def _shape(blob: Blob) -> Shape:
    return blob.num, blob.channels, blob.height, blob.width


def _items(blob: Blob) -> NDArray[Any]:
    """The blob's data to write, (num, channels, height, width)."""
    items: NDArray[Any] = blob.mutable_cpu_data().reshape(_shape(blob))
    return items


def _planes(mat: Mat) -> Mat:
    """A view of an image as (C, H, W)."""
    return mat[np.newaxis] if mat.ndim == 2 else mat.transpose(2, 0, 1)


def _apart(mat: Mat, place: Place) -> Mat:
    """An image as (C, H, W), contiguous, right at a place; valid until this thread asks for the next one."""
    mat = np.ascontiguousarray(mat)
    if mat.ndim == 2 or mat.shape[2] == 1:
        return mat.reshape(1, *mat.shape[:2])
    planes = scratch("planes", (mat.shape[2], *mat.shape[:2]), mat.dtype)
    apart(mat, place.h_off, place.w_off, place.height, place.width, planes)
    return planes


class DataTransformer:
    """Prepares images as ``param`` says; ``dtype``, float32 or float64, is the type of all arithmetic.

    Each ``transform_*`` writes into a blob that has its shape already, draws random words from the
    transformer's own ``stream``, and raises CheckError with upstream's message. ``draw`` and
    ``transform_item`` are the same in two steps: words are drawn in the order of the items, the work may be
    done in any order and on any thread.
    """

    def __init__(self, param: TransformationParameter, phase: int, dtype: DTypeLike = np.float32) -> None:
        self._param = param
        self._train = phase == caffe_pb2.TRAIN
        self.dtype = np.dtype(dtype)
        self._crop = int(param.crop_size)
        self._scale = self.dtype.type(param.scale)
        self._means = Means(param, self.dtype)
        self._force = param.force_color or param.force_gray
        self._mirrors = param.mirror
        self._fitting: tuple[Any, ...] | None = None  # what was checked last: most images are like the one before
        self.stream: Stream | None = None

    # --- random words

    @property
    def needs_rand(self) -> bool:
        """Whether anything is left to chance."""
        return self._param.mirror or (self._train and self._crop > 0)

    def init_rand(self) -> None:
        """Start the stream anew with one word of the thread's; without need of one, have none."""
        self.stream = context.current().stream.sub_stream() if self.needs_rand else None

    def rand(self, n: int) -> int:
        """Draw a number 0 … n - 1."""
        _check(self.stream, "rng_")
        _check.gt(n, 0, "n > 0")
        return self.stream.raw() % n  # type: ignore[union-attr]

    def draw(self, count: int) -> list[list[int]]:
        """The random words of so many images, for ``transform_item``."""
        words = int(self._param.mirror) + (2 if self._train and self._crop else 0)
        if not words:
            return [[]] * count
        _check(self.stream, "rng_")
        drawn: list[list[int]] = self.stream.raws(count * words).reshape(count, words).tolist()  # type: ignore[union-attr]
        return drawn

    # --- shapes

    def infer_datum(self, datum: Datum) -> Shape:
        """The shape, with num 1, that a record gets."""
        if datum.encoded:
            return self.infer_mat(self.decode(datum))
        return self._infer(datum.shape, "datum")

    def infer_datums(self, datums: Sequence[Datum]) -> Shape:
        """The same for several, as the first one tells."""
        _check.gt(len(datums), 0, "num > 0", "There is no datum to in the vector")
        return (len(datums), *self.infer_datum(datums[0])[1:])

    def infer_mat(self, mat: Mat) -> Shape:
        """The shape, with num 1, that an image gets."""
        return self._infer(_planes(mat).shape, "img")

    def infer_mats(self, mats: Sequence[Mat]) -> Shape:
        """The same for several, as the first one tells."""
        _check.gt(len(mats), 0, "num > 0", "There is no cv_img to in the vector")
        return (len(mats), *self.infer_mat(mats[0])[1:])

    def _infer(self, shape: Sequence[int], what: str) -> Shape:
        self._check_holds_crop(shape, what)
        channels, height, width = shape
        return 1, channels, self._crop or height, self._crop or width

    def _check_holds_crop(self, shape: Sequence[int], what: str) -> None:
        channels, height, width = shape
        _check.gt(channels, 0, f"{what}_channels > 0")
        _check.ge(height, self._crop, f"{what}_height >= crop_size")
        _check.ge(width, self._crop, f"{what}_width >= crop_size")

    # --- transforming

    def transform_datum(self, datum: Datum, top: Blob) -> None:
        """A record into the first item of ``top``."""
        self._datum(datum, _shape(top), lambda: _items(top)[0], self.rand)

    def transform_datums(self, datums: Sequence[Datum], top: Blob) -> None:
        """Records into the first items of ``top``, which may have more."""
        _check.gt(len(datums), 0, "datum_num > 0", "There is no datum to add")
        text = "The size of datum_vector must be no greater than transformed_blob->num()"
        _check.le(len(datums), top.num, "datum_num <= num", text)
        for datum, out in zip(datums, _items(top), strict=False):
            self._datum(datum, (1, *out.shape), lambda out=out: out, self.rand)  # type: ignore[misc]

    def transform_mat(self, mat: Mat, top: Blob) -> None:
        """An image into the first item of ``top``."""
        self._mat(mat, _shape(top), lambda: _items(top)[0], self.rand)

    def transform_mats(self, mats: Sequence[Mat], top: Blob) -> None:
        """Images into the items of ``top``, one for each."""
        _check.gt(len(mats), 0, "mat_num > 0", "There is no MAT to add")
        text = "The size of mat_vector must be equals to transformed_blob->num()"
        _check.eq(len(mats), top.num, "mat_num == num", text)
        for mat, out in zip(mats, _items(top), strict=True):
            self._mat(mat, (1, *out.shape), lambda out=out: out, self.rand)  # type: ignore[misc]

    def transform_item(self, item: Datum | Mat, out: NDArray[Any], words: Sequence[int]) -> None:
        """A record or image into ``out``, (C, H, W), with the words of a ``draw``; on any thread."""
        left = iter(words)
        transform: Callable[..., None] = self._datum if isinstance(item, Datum) else self._mat
        transform(item, (1, *out.shape), lambda: out, lambda n: next(left) % n)

    def _datum(self, datum: Datum, top: Shape, out: Callable[[], Mat], rand: Callable[[int], int]) -> None:
        if datum.encoded:
            self._mat(self.decode(datum), top, out, rand)
            return
        if self._force:
            _log.error("force_color and force_gray only for encoded datum")
        this = datum.shape, top, "datum"
        known = this == self._fitting
        if not known:
            self._check_fits(*this)
            self._check_size(*this)
        mirror = self._mirror(rand)
        if not known:
            self._check_image(datum.shape, "datum")
            self._fitting = this
        self._write(datum.pixels(), self._place(datum.shape, top, mirror, rand), out())

    def _mat(self, mat: Mat, top: Shape, out: Callable[[], Mat], rand: Callable[[int], int]) -> None:
        shape = mat.shape[2] if mat.ndim > 2 else 1, mat.shape[0], mat.shape[1]
        this = shape, top, "img"
        known = this == self._fitting
        if not known:
            self._check_fits(*this)
        _check(mat.dtype == np.uint8, "cv_img.depth() == CV_8U", "Image data type must be unsigned byte")
        mirror = self._mirror(rand)
        if not known:
            self._check_image(shape, "img")
            self._check_size(*this)
        place = self._place(shape, top, mirror, rand)
        _check(mat.size, "cv_cropped_img.data")
        self._fitting = this
        self._write(_apart(mat, place), place, out())

    def decode(self, datum: Datum) -> Mat:
        """The pixels of an encoded record; on any thread."""
        color, gray = self._param.force_color, self._param.force_gray
        expression = "!(param_.force_color() && param_.force_gray())"
        _check(not (color and gray), expression, "cannot set both force_color and force_gray")
        return decode(datum.data, COLOR if color else GRAY if gray else NATIVE)

    def _mirror(self, rand: Callable[[int], int]) -> bool:
        return self._mirrors and rand(2) == 1

    def _place(self, shape: Sequence[int], top: Shape, mirror: bool, rand: Callable[[int], int]) -> Place:
        crop = self._crop
        if not crop:
            return Place(mirror, 0, 0, top[2], top[3])
        spare_h, spare_w = shape[1] - crop, shape[2] - crop
        if self._train:
            return Place(mirror, rand(spare_h + 1), rand(spare_w + 1), crop, crop)
        return Place(mirror, spare_h // 2, spare_w // 2, crop, crop)

    def _check_fits(self, shape: Sequence[int], top: Shape, what: str) -> None:
        num, channels, height, width = top
        _check.eq(channels, shape[0], f"channels == {what}_channels")
        _check.le(height, shape[1], f"height <= {what}_height")
        _check.le(width, shape[2], f"width <= {what}_width")
        _check.ge(num, 1, "num >= 1")

    def _check_size(self, shape: Sequence[int], top: Shape, what: str) -> None:
        height, width = top[2:]
        if self._crop:
            _check.eq(self._crop, height, "crop_size == height")
            _check.eq(self._crop, width, "crop_size == width")
        else:
            _check.eq(shape[1], height, f"{what}_height == height")
            _check.eq(shape[2], width, f"{what}_width == width")

    def _check_image(self, shape: Sequence[int], what: str) -> None:
        self._check_holds_crop(shape, what)
        self._means.check_file(shape, what)
        self._means.check_values(shape[0], what)
        self._means.spread(shape[0])

    def _write(self, planes: Mat, place: Place, out: Mat) -> None:
        image = self._means.image
        part = planes, place.mirror, place.h_off, place.w_off
        if image is None:
            less_values(*part, self._means.each(len(planes)), self._scale, out)
        else:
            less_image(*part, image, self._scale, out)

    def transform_blob(self, source: Blob, top: Blob) -> None:
        """All items of ``source`` into ``top``, with one mirror and one place for all.

        Means are subtracted *in* ``source``; ``scale`` multiplies the whole of ``top``, which may have more
        items, and is shaped here if it is empty.
        """
        num, *shape = _shape(source)
        channels, height, width = shape
        if top.count == 0:
            top.reshape(num, channels, self._crop or height, self._crop or width)
        _check.le(num, top.num, "input_num <= num")
        _check.eq(channels, top.channels, "input_channels == channels")
        _check.ge(height, top.height, "input_height >= height")
        _check.ge(width, top.width, "input_width >= width")
        mirror = self._mirror(self.rand)
        self._check_size(shape, _shape(top), "input")
        place = self._place(shape, _shape(top), mirror, self.rand)
        self._means.check_file(shape, "input")
        self._means.check_values(channels, "input")
        data = _items(source)
        image = self._means.image
        if image is not None:
            data -= image
        elif self._means.values.size:
            data -= self._means.values[:, np.newaxis, np.newaxis]
        out = top.mutable_cpu_data()
        out.reshape(_shape(top))[:num] = place.of(data)
        scal(self._scale, out)  # by 0 everything becomes 0, without a sign
