"""HDF5 files, read and written as Caffe does: blobs, integers and strings. h5py is imported when one is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import prod
from typing import Any, NoReturn

import numpy as np

from refcaffe.blob import MAX_AXES, Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.device.room import require
from refcaffe.proto.io import replacing
from refcaffe.proto.strings import as_text

_check = Checker("hdf5.cpp")
_log = logging.getLogger("refcaffe.hdf5.cpp")

_SIGNATURE = b"\x89HDF\r\n\x1a\n"

# What h5py raises where the library reports a failure.
FAILURES = (OSError, LookupError, ValueError, TypeError, RuntimeError, NotImplementedError, MemoryError)

_BYTES_OF_AN_ENTRY = 4096  # of the library's list of chunks, measured

_seen_classes: set[str] = set()


def is_hdf5(path: str) -> bool | None:
    """Whether the contents are HDF5: its signature at the start, or at 512, 1024, 2048 ... None: cannot be read."""
    try:
        with open(path, "rb") as file:
            end, at = os.fstat(file.fileno()).st_size, 0
            while at < end:
                file.seek(at)
                if file.read(len(_SIGNATURE)) == _SIGNATURE:
                    return True
                at = at * 2 or 512
    except (OSError, ValueError):
        return None
    return False


@contextmanager
def opened(path: str, failed: CheckError) -> Iterator[Any]:
    """The file (h5py.File) for reading; ``failed`` is raised if it cannot be opened."""
    import h5py

    try:
        file = h5py.File(path, "r")
    except FAILURES as error:
        raise failed.within(f"{path}: {error}") from error
    with file:
        yield file


@contextmanager
def created(path: str, failed: CheckError) -> Iterator[Any]:
    """A file (h5py.File) to write, which takes ``path``'s place at the end, whole; ``failed`` if that cannot be."""
    import h5py

    try:
        with replacing(path) as file, h5py.File(file.name, "w") as contents:
            yield contents
    except CheckError:
        raise
    except FAILURES as error:
        raise failed.within(f"{path}: {error}") from error


def open_group(parent: Any, name: str, failed: CheckError) -> Any:
    """A group (h5py.Group) of a group; ``failed`` is raised if it is missing or no group."""
    import h5py

    try:
        return h5py.Group(h5py.h5g.open(parent.id, os.fsencode(name)))
    except FAILURES as error:
        raise failed from error


def create_group(parent: Any, name: str, failed: CheckError) -> Any:
    """A new group (h5py.Group); ``failed`` is raised for names that exist already or have a group that does not."""
    import h5py

    try:
        # Not create_group(), which would make the groups of a path.
        return h5py.Group(h5py.h5g.create(parent.id, os.fsencode(name)))
    except FAILURES as error:
        raise failed from error


def has_link(group: Any, name: str) -> bool:
    """Whether a group has a member of exactly this name, of whatever type."""
    try:
        return "/" not in name and bool(group.id.links.exists(os.fsencode(name)))
    except FAILURES:
        return False


def count_links(group: Any) -> int:
    """How many members a group has."""
    try:
        return len(group)
    except FAILURES as error:
        _failed("Error while counting HDF5 links.", error)


def link_names(group: Any) -> Iterator[str]:
    """The names of a group's members, sorted."""
    count_links(group)
    names = iter(group)
    for i in count():
        try:
            name = next(names, None)
        except FAILURES as error:
            text = f"Check failed: str_size >= 0 (-1 vs. 0) Error retrieving HDF5 dataset at index {i}"
            raise CheckError(text, "hdf5.cpp").within(str(error)) from error
        if name is None:
            return
        yield as_text(name)  # h5py gives bytes that are not UTF-8 as they are


# --- blobs


def _class_name(dataset: Any) -> str:
    """The class of the elements' type, as in ``H5T_FLOAT``."""
    from h5py import h5t

    names = (
        "INTEGER", "FLOAT", "TIME", "STRING", "BITFIELD", "OPAQUE", "COMPOUND", "REFERENCE", "ENUM", "VLEN", "ARRAY",
    )  # fmt: skip
    of_type = dataset.get_type().get_class()
    return next((name for name in names if getattr(h5t, name, None) == of_type), "")


def _check_class(name: str) -> None:
    if name not in ("FLOAT", "INTEGER"):
        _check.fatal(f"Unsupported datatype class: H5T_{name}" if name else "Datatype class unknown")
    if name not in _seen_classes:
        _seen_classes.add(name)
        _log.info("Datatype class: H5T_%s", name)


def load_blob(group: Any, name: str, blob: Blob, *, min_axes: int = 0, reshape: bool = False) -> None:
    """Read a dataset of numbers into the blob's data. Shapes must be equal, unless the blob is to be reshaped."""
    from h5py import h5d, h5s

    expression = "H5LTfind_dataset(file_id, dataset_name_)"
    _check(has_link(group, name), expression, f"Failed to find HDF5 dataset {name}")
    try:
        dataset = h5d.open(group.id, os.fsencode(name))
        shape = tuple(dataset.shape or ())
    except FAILURES as error:
        _failed(f"Failed to get dataset ndims for {name}", error)
    _check.ge(len(shape), min_axes, "ndims >= min_dim")
    _check.le(len(shape), MAX_AXES, "ndims <= max_dim")
    try:
        class_name = _class_name(dataset)
    except FAILURES as error:
        _failed(f"Failed to get dataset info for {name}", error)
    _check_class(class_name)
    if reshape:
        blob.reshape(shape)
    elif shape != blob.shape:
        source = "".join(f"{dim} " for dim in shape) + f"({prod(shape)})"
        text = f"Source shape is {source} target shape is {blob.shape_string}"
        _check(False, "blob_dims == blob->shape()", f"Cannot load blob from hdf5; shape mismatch. {text}")
    values = blob.mutable_cpu_data()
    _check.eq(values.size, blob.count, "data_->size() == count_")
    try:
        if values.size:
            require(_reading_takes(dataset))
            dataset.read(h5s.ALL, h5s.ALL, values)
    except FAILURES as error:
        _failed(f"Failed to read {_real(values)} dataset {name}", error)


def _reading_takes(dataset: Any) -> int:
    """How many bytes the library takes to read a dataset, besides what it is read into: a chunk, and a list of them."""
    from h5py import h5d

    layout = dataset.get_create_plist()
    if layout.get_layout() != h5d.CHUNKED:
        return 0
    chunk = layout.get_chunk()
    count = prod(-(-n // size) for n, size in zip(dataset.shape, chunk, strict=True))
    return count * _BYTES_OF_AN_ENTRY + 2 * prod(chunk) * int(dataset.get_type().get_size())  # packed and unpacked


def save_blob(group: Any, name: str, values: np.ndarray) -> None:
    """Write an array of floats as a dataset."""
    try:
        group.create_dataset(name, data=values)
    except FAILURES as error:
        _failed(f"Failed to make {_real(values)} dataset {name}", error)


def _real(values: np.ndarray) -> str:
    return "float" if values.dtype == np.float32 else "double"


def _failed(text: str, cause: BaseException) -> NoReturn:
    raise CheckError(f"Check failed: status >= 0 (-1 vs. 0) {text}", "hdf5.cpp").within(str(cause)) from cause


# --- integers and strings


def _first_element(dataset: Any, dtype: str, kind: Any = None) -> np.ndarray:
    """The first element of a dataset, however large that claims to be, as an array of one."""
    from h5py import h5i, h5s

    space = dataset.get_space()
    if np.dtype(dtype).itemsize > h5i.get_file_id(dataset).get_filesize():
        raise ValueError("one element is larger than the file")
    value = np.zeros(1, dtype)
    axes = space.get_simple_extent_ndims()
    if axes:
        space.select_hyperslab((0,) * axes, (1,) * axes)
    dataset.read(h5s.create_simple((1,)), space, value, kind)
    return value


def load_int(group: Any, name: str) -> int:
    """The first number of a dataset, as a C int."""
    from h5py import h5d

    try:
        return int(_first_element(h5d.open(group.id, os.fsencode(name)), "i4")[0])
    except FAILURES as error:
        _failed(f"Failed to load int dataset with name {name}", error)


def save_int(group: Any, name: str, value: int) -> None:
    """Write a dataset of one number."""
    group.create_dataset(name, data=np.array([value], np.int32))


def load_string(group: Any, name: str) -> str:
    """The bytes of a dataset's first element up to a zero, whatever their type is, as C's functions take them."""
    from h5py import h5d, h5t

    try:
        dataset = h5d.open(group.id, os.fsencode(name))
        kind = dataset.get_type()
    except FAILURES as error:
        _failed(f"Failed to get dataset info for {name}", error)
    try:
        if isinstance(kind, h5t.TypeStringID) and kind.is_variable_str():
            values = group[name]  # there may be any number
            return str(values.asstr(errors="surrogateescape")[(0,) * values.ndim])
        return os.fsdecode(_first_element(dataset, f"V{kind.get_size()}", kind).tobytes().split(b"\0")[0])
    except FAILURES as error:
        _failed(f"Failed to load int dataset with name {name}", error)


def save_string(group: Any, name: str, value: str) -> None:
    """Write a string of the fixed length that it has, with a zero at the end."""
    from h5py import h5d, h5s, h5t

    data = np.array(os.fsencode(value) + b"\0")
    kind = h5t.C_S1.copy()
    kind.set_size(len(os.fsencode(value)) + 1)
    dataset = h5d.create(group.id, os.fsencode(name), kind, h5s.create(h5s.SCALAR))
    dataset.write(h5s.ALL, h5s.ALL, data, kind)
