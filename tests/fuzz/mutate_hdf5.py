"""Damage to what an HDF5 file holds: the library reads it without complaint, and the code behind it gets it."""

from __future__ import annotations

import io
from collections.abc import Callable
from random import Random
from typing import Any

import h5py
import numpy as np

_TYPES: tuple[Any, ...] = (
    "f4", "f8", ">f4", "f2", "i1", "u1", "i4", "i8", "u8", ">i2", "?", "S1", "S7", "c8", "V3", "V100000",
    h5py.string_dtype(), h5py.vlen_dtype(np.float32), h5py.ref_dtype, np.dtype([("a", "f4"), ("b", "S3")]),
    np.dtype(("f4", (2, 3))), h5py.enum_dtype({"A": 0, "B": 1}, "i1"), h5py.opaque_dtype(np.dtype("M8[s]")),
)  # fmt: skip
_SHAPES: tuple[Any, ...] = (
    (), (0,), (1,), (2,), (3, 2), (1,) * 4, (1,) * 32, (2, 0, 3), (2**31 - 1,), (2**31,), (2**40,), (2**31, 2**31, 2),
    (65536, 65536), (10**6, 10), None,
)  # fmt: skip
_NAMES = ("0", "1", "2", "99", "data", "diff", "history", "iter", "learned_net", "current_step", "ip", "ä", "a b", "-1")


def _groups(file: Any) -> list[Any]:
    found = [file]
    file.visititems(lambda _, item: found.append(item) if isinstance(item, h5py.Group) else None)
    return found


def _chunks(rng: Random, shape: Any) -> dict[str, Any]:
    """How the data lie in the file: as one block, or in chunks that need not be there."""
    if not shape:
        return {}
    if max(shape) < 2**20 and rng.random() < 0.6:
        return {"fillvalue": 3} if rng.random() < 0.2 else {}
    size = rng.choice((1, 3, 1000, 10**6, 2**28))
    chunks = tuple(max(1, min(size, 2**31)) if axis == 0 else 1 for axis in range(len(shape)))
    packed = {"compression": "gzip"} if rng.random() < 0.3 else {}
    return {"chunks": chunks, "maxshape": (None,) * len(shape), **packed}


def _free_name(rng: Random, group: Any) -> str:
    name = rng.choice(list(group) or _NAMES) if rng.random() < 0.6 else rng.choice(_NAMES)
    if name in group or group.get(name, getlink=True, default=None) is not None:
        del group[name]
    return str(name)


def _dataset(rng: Random, group: Any) -> None:
    """A dataset, instead of what has its name."""
    shape = rng.choice(_SHAPES)
    kind = rng.choice(_TYPES)
    name = _free_name(rng, group)
    if shape is None:
        group.create_dataset(name, data=h5py.Empty(rng.choice(("f4", "i4", "S3"))))
        return
    group.create_dataset(name, shape, kind, **_chunks(rng, shape))


def _is_small(dataset: Any) -> bool:
    return bool(dataset.dtype.kind in "fiu" and dataset.size is not None and dataset.nbytes < 1 << 20)


def _retype(rng: Random, group: Any) -> None:
    """The same numbers in another type or shape."""
    numbers = [name for name, item in group.items() if isinstance(item, h5py.Dataset) and _is_small(item)]
    if not numbers:
        return
    name = rng.choice(numbers)
    values = group[name][()]
    del group[name]
    if rng.random() < 0.5:
        values = np.asarray(values).reshape(-1)[: rng.randrange(values.size + 1) if values.size else 0]
    group[name] = np.asarray(values).astype(rng.choice(("f4", "f8", "f2", "i4", "u1", ">f4", "S4")))


def _text(rng: Random, group: Any) -> None:
    value = rng.choice((b"", b"x", b"w.caffemodel", b"\xff\xfe", b"a" * 5000, b"/", b".", b"fuzzed.h5", b"a\0b"))
    group[_free_name(rng, group)] = np.array(value) if rng.random() < 0.6 else value.decode("latin-1").replace("\0", "")


def _drop(rng: Random, group: Any) -> None:
    if len(group):
        del group[rng.choice(list(group))]


def _group(rng: Random, group: Any) -> None:
    group.create_group(_free_name(rng, group))


def _rename(rng: Random, group: Any) -> None:
    if len(group):
        old = rng.choice(list(group))
        new = rng.choice(_NAMES)
        if new not in group and group.get(new, getlink=True, default=None) is None:
            group.move(old, new)


def _link(rng: Random, group: Any) -> None:
    name = _free_name(rng, group)
    kind = rng.randrange(4)
    if kind == 0:
        group[name] = h5py.SoftLink(rng.choice(("/data", "/nothing", name, ".", "/")))
    elif kind == 1:
        group[name] = h5py.ExternalLink(rng.choice(("nothing.h5", "fuzzed.h5", "")) or "x", "/data")
    else:
        group[name] = rng.choice(_groups(group.file))


def _many(rng: Random, group: Any) -> None:
    for i in range(rng.choice((5, 40, 300))):
        if str(i) not in group:
            group.create_group(str(i))


_CHANGES: tuple[Callable[[Random, Any], None], ...] = (
    _dataset, _dataset, _dataset, _retype, _retype, _text, _drop, _group, _rename, _link, _many,
)  # fmt: skip


def damage_hdf5(rng: Random, data: bytes) -> bytes:
    """A file with other contents. What the library refuses to write is left out."""
    stream = io.BytesIO(data)
    with h5py.File(stream, "r+") as file, np.errstate(all="ignore"):
        for _ in range(rng.choice((1, 1, 2, 3))):
            try:
                rng.choice(_CHANGES)(rng, rng.choice(_groups(file)))
            except (OSError, ValueError, TypeError, KeyError, RuntimeError, AttributeError):
                continue
    return stream.getvalue()
