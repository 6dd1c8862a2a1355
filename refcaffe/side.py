"""The two sides a formula can run on. A layer is written once, over ``side.xp`` and the arrays a side gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.context import Mode
from refcaffe.device import Memory, runtime
from refcaffe.kernels.parallel import copy


class Side:
    """The host. Arrays are NumPy's; each accessor moves the blob's heads as its name in C++ (``cpu_data`` ...) does."""

    gpu = False

    @property
    def xp(self) -> Any:
        """The array module."""
        return np

    def data(self, blob: Blob) -> Any:
        """The blob's data to read."""
        return blob.cpu_data()

    def mutable_data(self, blob: Blob) -> Any:
        """The blob's data to write, up to date."""
        return blob.mutable_cpu_data()

    def diff(self, blob: Blob) -> Any:
        """The blob's diff to read."""
        return blob.cpu_diff()

    def mutable_diff(self, blob: Blob) -> Any:
        """The blob's diff to write, up to date."""
        return blob.mutable_cpu_diff()

    def host(self, array: Any) -> Any:
        """The array as NumPy's; scalars and small results that upstream's BLAS calls hand to the host."""
        return array.get() if hasattr(array, "get") else array

    def copy(self, to: Any, source: Any, source_side: Side | None = None) -> None:
        """``to[...] = source`` as caffe_copy does it: not from an array to itself, and in GPU mode by the runtime.

        Contiguous arrays of one size and type; ``source`` lies on ``source_side`` if that is another one.
        """
        if not self.gpu and context.current().mode is Mode.CPU:
            copy(source, to)
            return
        target = Memory.of(to, self.gpu)
        data = Memory.of(source, (source_side or self).gpu)
        if target.address != data.address:
            runtime().copy(target, data, target.nbytes)


class DeviceSide(Side):
    """The current device; arrays are of the runtime's array module."""

    gpu = True

    @property
    def xp(self) -> Any:
        return runtime().xp

    def data(self, blob: Blob) -> Any:
        return blob.gpu_data()

    def mutable_data(self, blob: Blob) -> Any:
        return blob.mutable_gpu_data()

    def diff(self, blob: Blob) -> Any:
        return blob.gpu_diff()

    def mutable_diff(self, blob: Blob) -> Any:
        return blob.mutable_gpu_diff()


HOST = Side()
DEVICE = DeviceSide()
