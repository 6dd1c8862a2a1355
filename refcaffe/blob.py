"""Blob: an N-dimensional array of data and its gradient (diff), each in a SyncedMemory.

The attributes of pycaffe's Blob (``data``, ``diff``, ``shape``, ``count``, ``num`` ...) and the methods of C++'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.checks import Checker
from refcaffe.context import Mode
from refcaffe.device import Memory, runtime
from refcaffe.kernels.blas import scal, subtract
from refcaffe.syncedmem import Head, SyncedMemory

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import BlobProto, BlobShape

_check = Checker("blob.cpp")
_check_header = Checker("blob.hpp")

MAX_AXES = 32
INT_MAX = 2**31 - 1
LEGACY_FIELDS = ("num", "channels", "height", "width")


def _shown(shape: Sequence[int], count: int) -> str:
    return "".join(f"{dim} " for dim in shape) + f"({count})"


def _to_int32(value: int) -> int:
    """What a 64-bit dimension becomes as a C int."""
    return (value + 2**31) % 2**32 - 2**31


def _put(proto: BlobProto, field: str, array: Any) -> None:
    """Fill a packed field from an array, in its serialized form: element by element would take seconds."""
    data = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    head = [proto.DESCRIPTOR.fields_by_name[field].number << 3 | 2]
    size = len(data)
    while size > 127:
        head.append(size & 127 | 128)
        size >>= 7
    proto.MergeFromString(bytes([*head, size]) + data)


class Blob:
    """Data and diff of one shape and type (float32, float64; int32 and uint32 without arithmetic).

    ``Blob()`` has no memory at all; ``Blob(())`` is a scalar. The accessors of a side, ``cpu_data`` and the rest,
    return live arrays shaped like the blob, of NumPy or of the device's array module; they move heads and copy
    as ``SyncedMemory`` says. Raises CheckError with upstream's messages.
    """

    __slots__ = ("__weakref__", "_capacity", "_count", "_data", "_diff", "_shape", "_shape_data", "_views", "dtype")

    def __init__(self, shape: Sequence[int] | None = None, dtype: DTypeLike = np.float32) -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self._shape: tuple[int, ...] = ()
        self._count = 0
        self._capacity = 0
        self._data: SyncedMemory | None = None
        self._diff: SyncedMemory | None = None
        self._shape_data: SyncedMemory | None = None
        self._views: list[tuple[Memory | None, Any] | None] = [None] * 4
        if shape is not None:
            self.reshape(shape)

    def __del__(self) -> None:
        self._shape_data = self._diff = self._data = None  # freed in this order

    def __repr__(self) -> str:
        return f"Blob({_shown(self._shape, self._count)}, {self.dtype})"

    # --- shape

    @property
    def shape(self) -> tuple[int, ...]:
        return self._shape

    @property
    def count(self) -> int:
        """Number of elements; 0 for a blob that never had a shape."""
        return self._count

    @property
    def num_axes(self) -> int:
        return len(self._shape)

    @property
    def shape_string(self) -> str:
        """The dimensions, then the count in parentheses: ``2 3 (6)``."""
        return _shown(self._shape, self._count)

    def reshape(self, *shape: int | Sequence[int]) -> None:
        """Take a shape, given as one sequence or as separate dimensions.

        Memory is made anew, and its contents and sharing lost, only if the blob never had so many elements.
        """
        first: Any = shape[0] if len(shape) == 1 else shape
        dims = tuple(first) if isinstance(first, Iterable) else (first,)
        held = self._shape_data
        if dims == self._shape and held is not None and held.head is Head.HEAD_AT_CPU:
            return
        _check.le(len(dims), MAX_AXES, "shape.size() <= kMaxBlobAxes")
        if held is None or held.size < 4 * len(dims):
            held = self._shape_data = SyncedMemory(4 * len(dims))
        memory = held.mutable_cpu_data()
        count = 1
        for dim in dims:
            _check.ge(dim, 0, "shape[i] >= 0")
            if count != 0:
                _check.le(dim, INT_MAX // count, "shape[i] <= 0x7fffffff / count_", "blob size exceeds INT_MAX")
            count *= int(dim)
        if memory is not None:
            memory.array[: 4 * len(dims)] = np.array(dims, np.int32).view(np.uint8)
        self._shape, self._count = tuple(int(dim) for dim in dims), count
        self._views = [None] * 4
        if count > self._capacity:
            self._capacity = count
            self._renew(count)

    def _renew(self, count: int) -> None:
        self._data = SyncedMemory(count * self.dtype.itemsize)
        self._diff = SyncedMemory(count * self.dtype.itemsize)
        self._views = [None] * 4

    def reshape_like(self, other: Blob) -> None:
        self.reshape(other.shape)

    def reshape_proto(self, shape: BlobShape) -> None:
        """Take the shape of a BlobShape, whose 64-bit dimensions are narrowed without a check."""
        _check.le(len(shape.dim), MAX_AXES, "shape.dim_size() <= kMaxBlobAxes")
        self.reshape(tuple(map(_to_int32, shape.dim)))

    def canonical_axis(self, axis: int) -> int:
        """The axis counted from the front; negative ones count from the end."""
        axes = len(self._shape)
        if not -axes <= axis < axes:
            text = f"axis {axis} out of range for {axes}-D Blob with shape {self.shape_string}"
            _check_header.ge(axis, -axes, "axis_index >= -num_axes()", text)
            _check_header.lt(axis, axes, "axis_index < num_axes()", text)
        return axis % axes

    def dim(self, axis: int) -> int:
        """The dimension of an axis, which may be negative (C++: ``shape(axis)``)."""
        return self._shape[self.canonical_axis(axis)]

    def count_range(self, start: int, end: int | None = None) -> int:
        """The product of the dimensions ``start`` ... ``end`` - 1 (C++: ``count(start, end)``)."""
        axes = len(self._shape)
        end = axes if end is None else end
        if 0 <= start <= end <= axes:
            return prod(self._shape[start:end])
        _check_header.le(start, end, "start_axis <= end_axis")
        _check_header.ge(start, 0, "start_axis >= 0")
        _check_header.ge(end, 0, "end_axis >= 0")
        _check_header.le(start, axes, "start_axis <= num_axes()")
        _check_header.le(end, axes, "end_axis <= num_axes()")
        return prod(self._shape[start:end])

    def legacy_shape(self, index: int) -> int:
        """A dimension of the blob seen as num, channels, height, width: 1 where it has no such axis."""
        axes = len(self._shape)
        _check_header.le(axes, 4, "num_axes() <= 4", "Cannot use legacy accessors on Blobs with > 4 axes.")
        _check_header.lt(index, 4, "index < 4")
        _check_header.ge(index, -4, "index >= -4")
        return self._shape[index] if -axes <= index < axes else 1

    @property
    def num(self) -> int:
        return self.legacy_shape(0)

    @property
    def channels(self) -> int:
        return self.legacy_shape(1)

    @property
    def height(self) -> int:
        return self.legacy_shape(2)

    @property
    def width(self) -> int:
        return self.legacy_shape(3)

    def offset4(self, n: int, c: int = 0, h: int = 0, w: int = 0) -> int:
        """Position of an element by four indices; checked as loosely as upstream checks it."""
        _check_header.ge(n, 0, "n >= 0")
        _check_header.le(n, self.num, "n <= num()")
        _check_header.le(c, self.channels, "c <= channels()")
        _check_header.le(h, self.height, "h <= height()")
        _check_header.le(w, self.width, "w <= width()")
        return ((n * self.channels + c) * self.height + h) * self.width + w

    def offset(self, indices: Sequence[int]) -> int:
        """Position of an element; indices that are missing at the end are 0."""
        _check_header.le(len(indices), self.num_axes, "indices.size() <= num_axes()")
        position = 0
        for axis, dim in enumerate(self._shape):
            position *= dim
            if axis < len(indices):
                _check_header.ge(indices[axis], 0, "indices[i] >= 0")
                _check_header.lt(indices[axis], dim, "indices[i] < shape(i)")
                position += indices[axis]
        return position

    # --- memory

    @property
    def capacity(self) -> int:
        """The largest count so far."""
        return self._capacity

    def data_memory(self) -> SyncedMemory:
        """The memory of the data (C++: ``data()``)."""
        _check_header(self._data, "data_")
        return self._data  # type: ignore[return-value]

    def diff_memory(self) -> SyncedMemory:
        """The memory of the diff (C++: ``diff()``)."""
        _check_header(self._diff, "diff_")
        return self._diff  # type: ignore[return-value]

    @property
    def memories(self) -> tuple[SyncedMemory | None, SyncedMemory | None, SyncedMemory | None]:
        """The memories of data, diff and shape, None where there is none yet."""
        return self._data, self._diff, self._shape_data

    def _array(self, memory: Memory | None, slot: int) -> Any:
        """The live array of one side; less than the shape, and flat, where sharing left too little memory."""
        cached = self._views[slot]
        if cached is not None and cached[0] is memory:
            return cached[1]
        if memory is None:
            return runtime().xp.empty(self._shape, self.dtype)
        array = memory.array
        fits = array.size // self.dtype.itemsize
        array = array[: min(fits, self._count) * self.dtype.itemsize].view(self.dtype)
        if fits >= self._count:
            array = array.reshape(self._shape)
        self._views[slot] = (memory, array)
        return array

    def cpu_data(self) -> Any:
        if self._data is None:
            _check(False, "data_")
        return self._array(self._data.cpu_data(), 0)  # type: ignore[union-attr]

    def mutable_cpu_data(self) -> Any:
        if self._data is None:
            _check(False, "data_")
        return self._array(self._data.mutable_cpu_data(), 0)  # type: ignore[union-attr]

    def gpu_data(self) -> Any:
        _check(self._data, "data_")
        return self._array(self._data.gpu_data(), 1)  # type: ignore[union-attr]

    def mutable_gpu_data(self) -> Any:
        _check(self._data, "data_")
        return self._array(self._data.mutable_gpu_data(), 1)  # type: ignore[union-attr]

    def cpu_diff(self) -> Any:
        if self._diff is None:
            _check(False, "diff_")
        return self._array(self._diff.cpu_data(), 2)  # type: ignore[union-attr]

    def mutable_cpu_diff(self) -> Any:
        if self._diff is None:
            _check(False, "diff_")
        return self._array(self._diff.mutable_cpu_data(), 2)  # type: ignore[union-attr]

    def gpu_diff(self) -> Any:
        _check(self._diff, "diff_")
        return self._array(self._diff.gpu_data(), 3)  # type: ignore[union-attr]

    def mutable_gpu_diff(self) -> Any:
        _check(self._diff, "diff_")
        return self._array(self._diff.mutable_gpu_data(), 3)  # type: ignore[union-attr]

    def gpu_shape(self) -> Any:
        """The dimensions on the device, int32."""
        _check(self._shape_data, "shape_data_")
        memory = self._shape_data.gpu_data()  # type: ignore[union-attr]
        if memory is None:
            return runtime().xp.empty(0, np.int32)
        return memory.array[: 4 * self.num_axes].view(np.int32)

    @property
    def data(self) -> Any:
        """The data as a NumPy array to read and write (pycaffe): makes the host's side the newest."""
        return self.mutable_cpu_data()

    @property
    def diff(self) -> Any:
        """The diff as a NumPy array to read and write (pycaffe): makes the host's side the newest."""
        return self.mutable_cpu_diff()

    def data_at(self, indices: Sequence[int]) -> Any:
        return self.cpu_data().reshape(-1)[self.offset(indices)]

    def diff_at(self, indices: Sequence[int]) -> Any:
        return self.cpu_diff().reshape(-1)[self.offset(indices)]

    def set_cpu_data(self, memory: Memory | None) -> None:
        """Use the caller's host memory for the data. 1.0: memory of another size is replaced, and the diff with it."""
        _check(memory is not None, "data")
        self._memory_to_set().set_cpu_data(memory)

    def set_gpu_data(self, memory: Memory | None) -> None:
        """Use the caller's device memory for the data, as ``set_cpu_data``. Not there in the reader era."""
        _check(memory is not None, "data")
        if context.current_build().reader_era:
            raise AttributeError("Blob::set_gpu_data: not there in the Caffe that has DataReader")
        self._memory_to_set().set_gpu_data(memory)

    def _memory_to_set(self) -> SyncedMemory:
        size = self._count * self.dtype.itemsize
        if self.data_memory().size != size and not context.current_build().reader_era:
            self._renew(self._count)
        return self.data_memory()

    def share_data(self, other: Blob) -> None:
        """Use the other's data memory from now on; counts must be equal, shapes need not."""
        _check.eq(self._count, other.count, "count_ == other.count()")
        self._data = other.data_memory()

    def share_diff(self, other: Blob) -> None:
        """Use the other's diff memory from now on; counts must be equal, shapes need not."""
        _check.eq(self._count, other.count, "count_ == other.count()")
        self._diff = other.diff_memory()

    def copy_from(self, source: Blob, copy_diff: bool = False, reshape: bool = False) -> None:
        """Copy the source's data, or its diff, on the side that the mode says. Shapes must agree unless ``reshape``."""
        if source.shape != self._shape or source.count != self._count:
            if not reshape:
                _check.fatal("Trying to copy blobs of different sizes.")
            self.reshape_like(source)
        to = self.diff_memory() if copy_diff else self.data_memory()
        gpu = context.current().mode is Mode.GPU
        # The written side comes first, as the recordings' compiler had it.
        target = to.mutable_gpu_data() if gpu else to.mutable_cpu_data()
        held = source._diff if copy_diff else source._data
        _check(held, "diff_" if copy_diff else "data_")
        data = held.gpu_data() if gpu else held.cpu_data()  # type: ignore[union-attr]
        if data is target:
            return
        nbytes = self._count * self.dtype.itemsize
        if gpu:
            runtime().copy(target, data, nbytes)
        else:
            runtime().host_copy(target, data, nbytes)  # type: ignore[arg-type]

    # --- arithmetic, on the side where the newest bytes are

    def _floating(self) -> None:
        if self.dtype.kind != "f":
            _check.fatal("Not Implemented Yet")

    def _side(self, memory: SyncedMemory | None) -> str | None:
        """``cpu`` or ``gpu``; None if there is nothing yet."""
        if memory is None or memory.head is Head.UNINITIALIZED:
            return None
        if memory.head is Head.HEAD_AT_CPU:
            return "cpu"
        if not runtime().has_gpu:
            runtime().no_gpu()
        return "gpu"

    def update(self) -> None:
        """data -= diff."""
        self._floating()
        side = self._side(self.data_memory())
        if side is None:
            _check.fatal("Syncedmem not initialized.")
        # The written side comes first, as the recordings' compiler had it.
        data = self.mutable_cpu_data() if side == "cpu" else self.mutable_gpu_data()
        subtract(self.cpu_diff() if side == "cpu" else self.gpu_diff(), data)
        runtime().event("axpy", side, self._count)

    def _asum(self, memory: SyncedMemory | None, name: str) -> float:
        self._floating()
        side = self._side(memory)
        if side is None:
            return 0.0
        array = getattr(self, f"{side}_{name}")()
        runtime().event("asum", side, self._count)
        return float(abs(array).sum())

    def asum_data(self) -> float:
        """Sum of the absolute values of the data."""
        return self._asum(self._data, "data")

    def asum_diff(self) -> float:
        return self._asum(self._diff, "diff")

    def _sumsq(self, memory: SyncedMemory | None, name: str) -> float:
        self._floating()
        side = self._side(memory)
        if side is None:
            return 0.0
        array = getattr(self, f"{side}_{name}")().reshape(-1)
        runtime().event("dot", side, self._count)
        return float(array @ array)

    def sumsq_data(self) -> float:
        """Sum of the squares of the data."""
        return self._sumsq(self._data, "data")

    def sumsq_diff(self) -> float:
        return self._sumsq(self._diff, "diff")

    def _scale(self, memory: SyncedMemory | None, name: str, factor: float) -> None:
        self._floating()
        side = self._side(memory)
        if side is not None:
            scal(self.dtype.type(factor), getattr(self, f"mutable_{side}_{name}")())
            runtime().event("scal", side, self._count)

    def scale_data(self, factor: float) -> None:
        self._scale(self._data, "data", factor)

    def scale_diff(self, factor: float) -> None:
        self._scale(self._diff, "diff", factor)

    # --- protocol buffers

    def shape_equals(self, proto: BlobProto) -> bool:
        """Whether the proto has this shape; its legacy fields, if any is there, count from the last axis."""
        if any(map(proto.HasField, LEGACY_FIELDS)):
            legacy = [getattr(proto, field) for field in LEGACY_FIELDS]
            return self.num_axes <= 4 and [self.legacy_shape(i) for i in range(-4, 0)] == legacy
        return self._shape == tuple(map(_to_int32, proto.shape.dim))

    def from_proto(self, proto: BlobProto, reshape: bool = True, data: Any = None) -> None:
        """Take data, and diff if there is one, of a BlobProto, and its shape if ``reshape``.

        ``data``: the values of its field ``data``, flat, where they are kept apart from it.
        """
        if reshape:
            if any(map(proto.HasField, LEGACY_FIELDS)):
                self.reshape([getattr(proto, field) for field in LEGACY_FIELDS])
            else:
                self.reshape(tuple(map(_to_int32, proto.shape.dim)))
        else:
            _check(self.shape_equals(proto), "ShapeEquals(proto)", "shape mismatch (reshape not set)")
        array = self.mutable_cpu_data()
        if data is not None:
            _check.eq(self._count, len(data), "count_ == proto.data_size()")
            array.reshape(-1)[:] = data
        else:
            self._take(array, proto, "double_data" if len(proto.double_data) else "data")
        name = "double_diff" if len(proto.double_diff) else "diff"
        if len(getattr(proto, name)):
            self._take(None, proto, name)

    def _take(self, array: Any, proto: BlobProto, field: str) -> None:
        values = getattr(proto, field)
        _check.eq(self._count, len(values), f"count_ == proto.{field}_size()")
        if array is None:
            array = self.mutable_cpu_diff()
        kind = np.float64 if field.startswith("double") else np.float32
        with np.errstate(over="ignore", invalid="ignore"):  # doubles that are no floats become infinities
            array.reshape(-1)[:] = np.array(values, kind)

    def to_proto(self, proto: BlobProto, write_diff: bool = False) -> None:
        """Write shape and data, and the diff if asked, into a BlobProto; the other precision's fields stay."""
        if self.dtype.kind != "f":
            raise TypeError(f"a blob of {self.dtype} has no protocol buffer form")
        names = ("data", "diff") if self.dtype == np.float32 else ("double_data", "double_diff")
        proto.ClearField("shape")
        if self._shape:
            proto.shape.dim.extend(self._shape)
        for name in names:
            proto.ClearField(name)
        _put(proto, names[0], self.cpu_data())
        if write_diff:
            _put(proto, names[1], self.cpu_diff())
