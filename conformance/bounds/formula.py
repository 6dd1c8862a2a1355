"""What a layer type's formula is: forward and backward in bounded arrays, and the registry that finds types by name."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from conformance.bounds.running import Bounded

Arrays = list[Bounded]
MaybeArrays = list[Bounded | None]


class Formula:
    """One layer, in the order of operations in which the original computes: what is rounded where.

    Which blobs there are and when they change is ``replay``'s affair. ``layer``: the LayerParameter; ``train``: whether
    the phase is TRAIN; ``folder``: where files that it names lie.
    """

    bottoms_always = False  # bottoms get a gradient whatever propagate_down says
    params_always = False  # parameters do, whatever their lr_mult says
    device = False  # whether it is the form that a device computes

    def __init__(self, layer: Any, train: bool, folder: Path) -> None:
        self.layer = layer
        self.train = train
        self.folder = folder

    @property
    def in_place(self) -> bool:
        """Whether the first top is the first bottom: then its diff is overwritten while the gradient is computed."""
        return list(self.layer.top[:1]) == list(self.layer.bottom[:1])

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        """The tops. May replace elements of ``params``."""
        raise NotImplementedError(f"{type(self).__name__}.forward")

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        """The diffs of the bottoms, whose data is as it is now; None stands for one that is not written."""
        raise NotImplementedError(f"{type(self).__name__}.backward")

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        """The parameters' diffs, added to the ``old`` ones."""
        return old

    def read_blob(self, file: str) -> Bounded:
        """The numbers of a BlobProto file, flat."""
        from refcaffe.proto import caffe_pb2

        return Bounded(caffe_pb2.BlobProto.FromString((self.folder / file).read_bytes()).data)


F = TypeVar("F", bound=type[Formula])
_formulas: dict[str, type[Formula]] = {}


def formula(layer_type: str) -> Callable[[F], F]:
    """Class decorator: the formula of a layer type."""

    def add(cls: F) -> F:
        _formulas[layer_type] = cls
        return cls

    return add


def find(layer_type: str) -> type[Formula] | None:
    """The formula of a layer type; None if it has none."""
    return _formulas.get(layer_type)


def blocks(shape: tuple[int, ...], axis: int, end: int | None = None) -> tuple[int, int, int]:
    """A shape as outer × middle × inner, where the middle are axes ``axis`` ... ``end`` (``axis`` alone by default)."""
    axis %= max(len(shape), 1)
    end = axis + 1 if end is None else end
    return prod(shape[:axis]), prod(shape[axis:end]), prod(shape[end:])


def places(labels: Bounded) -> np.ndarray:
    """Labels or indices, truncated as a C cast does, flat."""
    return labels.value.astype(np.int64).ravel()
