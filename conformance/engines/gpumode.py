"""What an engine offers for GPU mode: layers, nets and solvers one step at a time, with every copy in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

Copy = list[Any]
Blobs = Mapping[str, Any]


class Parts(Protocol):
    """A net or the nets of a solver. Blobs are opaque; parameters are named ``layer[index]``."""

    @property
    def layers(self) -> list[list[str]]:
        """Name and type of every layer, splits included."""

    @property
    def need_backward(self) -> list[str]: ...

    @property
    def blobs(self) -> Blobs:
        """In net order."""

    @property
    def params(self) -> Blobs:
        """All of them, in net order."""

    def of_layer(self, index: int) -> Blobs:
        """Bottoms, tops and parameters of a layer, by their names in the net."""

    def forward(self, index: int) -> float: ...

    def backward(self, index: int) -> None: ...

    def read_python(self, blob: str) -> None:
        """What pycaffe does to a blob whose ``data`` is asked for."""

    def clear_param_diffs(self) -> None: ...

    def close(self) -> None: ...


class LayerPart(Protocol):
    """One layer by itself. Blobs are opaque."""

    falls_back: dict[str, bool]
    type: str

    @property
    def params(self) -> Sequence[Any]: ...

    def set_up(self, bottoms: Sequence[Any], tops: Sequence[Any]) -> None: ...

    def reset(self, data: np.ndarray, labels: np.ndarray) -> None:
        """``MemoryDataLayer::Reset``."""

    def has_loss(self, tops: int) -> bool: ...

    def forward(self, bottoms: Sequence[Any], tops: Sequence[Any]) -> float: ...

    def backward(self, tops: Sequence[Any], propagate_down: Sequence[bool], bottoms: Sequence[Any]) -> None: ...

    def close(self) -> None: ...


class SolverPart(Protocol):
    """A solver that trains one iteration at a time."""

    net: Parts
    test_nets: Sequence[Parts]

    @property
    def history(self) -> Sequence[Any]: ...

    def step(self, on_start: Any, on_gradients_ready: Any) -> None:
        """One iteration, with two functions that are called before the forward pass and before the update."""

    def snapshot(self) -> None: ...

    def restore(self, file: str) -> None: ...

    def close(self) -> None: ...


class GpuWorld(Protocol):
    """Caffe in GPU mode on device 0, with nothing in it.

    ``draws``: what the device's generator gives, call by call; ``drawn``: type and size of each call so far.
    """

    draws: list[np.ndarray]
    drawn: list[list[Any]]

    def set_mode(self, mode: str) -> None: ...

    def set_random_seed(self, seed: int) -> None: ...

    def blob(self, shape: Sequence[int] | None) -> Any:
        """A Blob with the methods of ``refcaffe.Blob``."""

    def blob_proto(self) -> Any:
        """An empty BlobProto."""

    def layer(self, text: str, phase: str) -> LayerPart: ...

    def net(self, file: str, phase: str) -> Parts: ...

    def solver(self, file: str) -> SolverPart: ...

    def external(self, side: str, values: Any) -> Any:
        """New memory of the caller's on a side (``cpu``, ``gpu``) that holds float32 values."""

    def async_push(self, blob: Any) -> None:
        """``async_gpu_push`` of a blob's data, and wait for it."""

    def write(self, blob: Any, which: str, side: str, array: np.ndarray) -> None:
        """Write an array through a blob's ``mutable_<side>_<which>``."""

    def clear_on_device(self, blob: Any) -> None:
        """Zero a blob's diff on the device."""

    def heads(self, blob: Any) -> str:
        """Two letters, as FORMAT-gpumode.md has them."""

    def contents(self, blob: Any, which: str) -> np.ndarray | None:
        """A copy of what the newest side holds, without touching a head; None if there is nothing."""

    def watch(self, named: Blobs) -> None:
        """From now on these blobs' memories are called ``<name>.data`` and ``<name>.diff``."""

    def settle(self) -> None:
        """Wait until all prefetch threads wait, too."""

    def take_copies(self) -> tuple[list[Copy], list[Copy]]:
        """The copies since the last call: the caller's, with names, and those of prefetch threads, without."""
