"""The two sides a formula can run on. A layer is written once, over ``side.xp`` and the arrays a side gives."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.blob import Blob
from refcaffe.device import runtime


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
