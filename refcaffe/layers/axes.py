"""What Concat and Slice share, and C's narrowing of unsigned fields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from refcaffe.blob import MAX_AXES, Blob
from refcaffe.checks import Checker

if TYPE_CHECKING:
    from refcaffe.layers.base import Blobs
    from refcaffe.proto.caffe_pb2 import ConcatParameter, SliceParameter


def to_int(value: int) -> int:
    """What an unsigned or 64-bit field becomes as a C int."""
    return (value + 2**31) % 2**32 - 2**31


def check_one_name(check: Checker, param: ConcatParameter | SliceParameter, verb: str) -> None:
    """Refuse ``axis`` together with its old name, ``concat_dim`` or ``slice_dim``."""
    both = param.HasField("axis") and param.HasField(f"{verb}_dim")
    text = f"Either axis or {verb}_dim should be specified; not both."
    check(not both, f"!({verb}_param.has_axis() && {verb}_param.has_{verb}_dim())", text)


def chosen_axis(check: Checker, param: ConcatParameter | SliceParameter, verb: str, blob: Blob) -> int:
    """The axis to join or cut along. The old name takes no negative numbers."""
    old = f"{verb}_dim"
    if not param.HasField(old):
        return blob.canonical_axis(param.axis)
    axis = to_int(getattr(param, old))
    text = f"casting {old} from uint32 to int32 produced negative result; {old} must satisfy 0 <= {old} < {MAX_AXES}"
    check.ge(axis, 0, f"{verb}_axis_ >= 0", text)
    check.lt(axis, blob.num_axes, f"{verb}_axis_ < num_axes", f"{old} out of range.")
    return axis


def parts(whole: Any, axis: int, blobs: Blobs) -> Iterator[Any]:
    """Views of consecutive parts of an array along an axis, as long there as the blobs are."""
    start = 0
    for blob in blobs:
        end = start + blob.shape[axis]
        yield whole[(slice(None),) * axis + (slice(start, end),)]
        start = end
