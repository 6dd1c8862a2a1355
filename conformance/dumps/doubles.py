"""refcaffe's own layers in double precision: the rule for what moves, selects or adds up numbers but rounds little.

Such a layer gives what it gives for the exact numbers. As it never weighs a number by more than 1 on the way (a
maximum moves no more than any of its numbers), the errors of its bottoms come out as they would themselves: its top's
error is what it makes of its bottoms' errors, plus the rounding of its sums.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays
from conformance.bounds.running import Bounded, U
from refcaffe.blob import Blob
from refcaffe.layers.base import make
from refcaffe.proto.caffe_pb2 import PoolingParameter


class Doubles:
    """One layer on arrays."""

    def __init__(self, param: Any, bottoms: list[np.ndarray]) -> None:
        """Sets the layer up and runs it forward: ``tops``."""
        alone = type(param)()
        alone.CopyFrom(param)
        alone.ClearField("loss_weight")
        self.layer = make(alone, np.float64)
        self.bottoms = [Blob(array.shape, np.float64) for array in bottoms]
        self.top_blobs = [Blob(dtype=np.float64) for _ in param.top]
        self._fill(self.bottoms, "data", bottoms)
        self.layer.set_up(self.bottoms, self.top_blobs)
        self.layer.forward(self.bottoms, self.top_blobs)
        self.tops = [np.array(blob.data) if blob.count else np.empty(blob.shape) for blob in self.top_blobs]

    def backward(self, top_diffs: list[np.ndarray], wanted: list[bool]) -> list[np.ndarray]:
        """The bottoms' diffs for diffs of the tops; zeros for those that get none."""
        for blob in self.bottoms:
            if blob.count:
                blob.diff[...] = 0
        self._fill(self.top_blobs, "diff", top_diffs)
        self.layer.backward(self.top_blobs, wanted, self.bottoms)
        return [np.array(blob.diff) if blob.count else np.empty(blob.shape) for blob in self.bottoms]

    @staticmethod
    def _fill(blobs: list[Blob], which: str, arrays: list[np.ndarray]) -> None:
        for blob, array in zip(blobs, arrays):
            if blob.count:
                getattr(blob, which)[...] = array


class Moving(Formula):
    """A layer of which that is true. ``guides``: bottoms that are indices or selectors, or whose shape alone counts."""

    guides: frozenset[int] = frozenset()
    decides: frozenset[int] = frozenset()  # tops that are places or decisions: unknown unless the bottoms are exact

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.unsure = any(bottoms[j].error.any() for j in self.guides if j < len(bottoms))
        self.double = Doubles(self.layer, [bottom.value for bottom in bottoms])
        inexact = any(bottom.error.any() for bottom in bottoms)
        if not inexact:
            errors = [np.zeros(top.shape) for top in self.double.tops]
        elif self.unsure:
            errors = [np.full(top.shape, np.inf) for top in self.double.tops]
        else:
            errors = Doubles(self.layer, self._with_guides(bottoms, "error")).tops
        additions = self.additions(bottoms)
        if additions:
            sizes = Doubles(self.layer, self._with_guides(bottoms, "largest")).tops
            errors = [error + _gamma(additions) * size for error, size in zip(errors, sizes)]
        for j in self.decides & set(range(len(errors))):
            errors[j] = np.full(errors[j].shape, np.inf if inexact else 0.0)
        self.places_unsure = inexact
        return [Bounded(top, np.abs(error)) for top, error in zip(self.double.tops, errors)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        values = self.double.backward([d.value for d in top_diffs], wanted)
        if self.unsure or (self.selects and self.places_unsure):
            return [Bounded(value, np.inf) for value in values]
        errors = self.double.backward([d.error for d in top_diffs], wanted)
        sizes = self.double.backward([d.largest for d in top_diffs], wanted)
        terms = self.double.backward([np.ones(d.shape) for d in top_diffs], wanted)
        divided = self.additions(bottoms)
        gammas = [_gamma(np.maximum(np.round(n) - 1, 0) + divided + bool(divided)) for n in terms]
        return [
            Bounded(value, error + gamma * size) for value, error, gamma, size in zip(values, errors, gammas, sizes)
        ]

    @property
    def selects(self) -> bool:
        """Whether the gradient goes where the largest number was."""
        return False

    def additions(self, bottoms: Arrays) -> int:
        """How many roundings a number of a top has on its way."""
        return 0

    def _with_guides(self, bottoms: Arrays, what: str) -> list[np.ndarray]:
        return [bottom.value if j in self.guides else getattr(bottom, what) for j, bottom in enumerate(bottoms)]


def _gamma(n: Any) -> Any:
    return n * U / (1 - n * U)


class Crop(Moving):
    guides = frozenset({1})


class BatchReindex(Moving):
    guides = frozenset({1})


class Filter(Moving):
    """The last bottom selects."""

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.guides = frozenset({len(bottoms) - 1})
        return super().forward(bottoms, params)


class Decision(Moving):
    """Each top is a decision or a count: exact for exact bottoms, and nobody knows for others."""

    guides = frozenset(range(8))

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        return [Bounded(top.value, top.error).rounded() for top in super().forward(bottoms, params)]


class Pooling(Moving):
    """MAX: the second top holds places. AVE: a sum over a window and a division."""

    decides = frozenset({1})

    @property
    def selects(self) -> bool:
        return self.layer.pooling_param.pool == PoolingParameter.MAX

    def additions(self, bottoms: Arrays) -> int:
        given = self.layer.pooling_param
        if given.pool != PoolingParameter.AVE:
            return 0
        window = given.kernel_size**2 or given.kernel_h * given.kernel_w
        return prod(bottoms[0].shape[2:]) if given.global_pooling else window


class SPP(Moving):
    """Poolings over windows of up to the whole plane."""

    @property
    def selects(self) -> bool:
        return self.layer.spp_param.pool == PoolingParameter.MAX

    def additions(self, bottoms: Arrays) -> int:
        return prod(bottoms[0].shape[2:]) if self.layer.spp_param.pool == PoolingParameter.AVE else 0


class EltwiseMax(Moving):
    """The largest of several; its gradient goes to the one that was chosen."""

    @property
    def selects(self) -> bool:
        return True
