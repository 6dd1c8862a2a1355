"""What the losses with labels share: by how much a loss is divided, and which labels are left out."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.checks import Checker
from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LossParameter

LOG_THRESHOLD = 1e-20
"""Lower probabilities count as this much where upstream says ``kLOG_THRESHOLD``."""


def integers(values: Any) -> Any:
    """Labels stored as floats: truncated toward zero to int32."""
    return values.astype(np.int32)


def check_labels(check: Checker, labels: Any, classes: int, expression: str) -> None:
    """Refuse labels outside 0 ... ``classes`` - 1, as a debug build does; others read outside the scores."""
    outside = (labels < 0) | (labels >= classes)
    if outside.any():
        label = int(labels[outside][0])
        check.ge(label, 0, "label_value >= 0")
        check.lt(label, classes, expression)


FEW = 1 << 12  # places, of which a small net's pass takes less time than asking where they are


@lru_cache(maxsize=8)
def _few_places(shape: tuple[int, int]) -> tuple[Any, Any]:
    rows, columns = np.nonzero(np.ones(shape, bool))
    return rows, columns


class Normalization:
    """A loss layer's ``loss_param``. ``default`` is the mode if the layer's definition asks for none."""

    def __init__(self, param: LossParameter, default: int = caffe_pb2.LossParameter.VALID) -> None:
        self.ignore_label: int | None = param.ignore_label if param.HasField("ignore_label") else None
        self.mode: int = default
        if param.HasField("normalization"):
            self.mode = param.normalization
        elif param.HasField("normalize"):
            modes = caffe_pb2.LossParameter
            self.mode = modes.VALID if param.normalize else modes.BATCH_SIZE

    def ignored(self, labels: Any) -> Any:
        """Where labels are to be left out (bool, of their shape); None if nothing ever is."""
        return None if self.ignore_label is None else labels == self.ignore_label

    def places(self, xp: Any, labels: Any) -> tuple[Any, Any]:
        """Two index arrays: the places of a matrix of labels that are not ignored, row by row."""
        ignored = self.ignored(labels)
        if ignored is not None:
            return xp.nonzero(~ignored)
        if xp is np and labels.size <= FEW:
            return _few_places(labels.shape)
        return xp.nonzero(xp.ones(labels.shape, bool))

    def divisor(self, outer: int, inner: int, valid: int, dtype: DTypeLike) -> Any:
        """By how much to divide: ``outer`` examples of ``inner`` places, ``valid`` in all; at least 1."""
        modes = caffe_pb2.LossParameter
        divisors = {modes.FULL: outer * inner, modes.VALID: valid, modes.BATCH_SIZE: outer, modes.NONE: 1}
        return np.dtype(dtype).type(max(1, divisors[self.mode]))
