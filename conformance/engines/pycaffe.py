"""What an engine offers for whole nets and solvers: pycaffe, and what recordings show beyond it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Thread
from typing import Any, Protocol


class NetPart(Protocol):
    """A net. Blobs and parameters are pycaffe's: ``data``, ``diff``, ``shape``, ``count``, ``reshape(*shape)``."""

    @property
    def blobs(self) -> Mapping[str, Any]: ...

    @property
    def params(self) -> Mapping[str, Sequence[Any]]: ...

    @property
    def layer_types(self) -> Sequence[str]: ...

    def structure(self) -> dict[str, Any]:
        """What FORMAT-net.md calls ``info``, without ``proto``."""

    def definition(self) -> str:
        """The text of the net's own NetParameter as it would be saved, without blobs."""

    def run_forward(self, start: str | None, end: str | None) -> float:
        """Run layers by name, both included (None: the first, the last); the loss."""

    def run_backward(self, start: str | None, end: str | None) -> None:
        """Run layers ``start`` down to ``end`` backward (None: the last, the first)."""

    def watch(self, note: Callable[[str, int], None]) -> None:
        """From now on call ``note("before_forward", layer number)`` and so on around every layer."""

    def before_pass(self, function: Callable[[], None]) -> None:
        """From now on call a function just before layer 0 runs forward."""

    def update(self) -> None: ...

    def method(self, name: str) -> Callable[..., Any]:
        """A method of pycaffe's Net: forward, backward, forward_all, set_input_arrays, reshape, clear_param_diffs,

        copy_from, load_hdf5, save, save_hdf5. Raises Unsupported if it is not there.
        """

    def share_with(self, other: Any) -> None: ...

    def close(self) -> None:
        """End its threads and close its files."""


class SolverPart(Protocol):
    """A solver. ``learnable`` and ``history`` are lists of blobs; what is no property can be set."""

    current_step: int
    clip_gradients: float
    """The parameter of that name: negative where nothing is clipped."""

    @property
    def net(self) -> NetPart: ...

    @property
    def test_nets(self) -> Sequence[NetPart]: ...

    @property
    def type(self) -> str: ...

    @property
    def iter(self) -> int: ...

    @property
    def losses(self) -> Sequence[float]: ...

    @property
    def smoothed_loss(self) -> float | None:
        """None as long as nothing was written to it."""

    @property
    def requested_early_exit(self) -> bool: ...

    @property
    def learnable(self) -> Sequence[Any]: ...

    @property
    def history(self) -> Sequence[Any]: ...

    @property
    def lr(self) -> float: ...

    def param_text(self) -> str:
        """The solver's parameters after upgrading, in protobuf's text form."""

    def param(self) -> Any:
        """What pycaffe shows of the parameters: an object with max_iter, display, base_lr, layer_wise_reduce."""

    def step(self, iterations: int) -> None: ...

    def solve(self, resume: str | None) -> None: ...

    def snapshot(self) -> None: ...

    def restore(self, file: str) -> None: ...

    def apply_update(self) -> None: ...

    def share_weights(self, net: Any) -> None: ...

    def close(self) -> None:
        """Close all of its nets."""

    def set_actions(self, ask: Callable[[], str]) -> None:
        """The function that is asked for ``none``, ``stop`` or ``snapshot``."""

    def watch(
        self, on_gradients: Callable[[], None], on_rate: Callable[[Any], Any], on_updated: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """While it lasts call functions in every iteration: when the gradients are ready, with the rate that the update

        is about to use (what is returned is used instead), and after the update.
        """


class Pycaffe(Protocol):
    """pycaffe in a process of its own, as it were: nothing is left of what ran before, and logs are kept."""

    def set_random_seed(self, seed: int) -> None: ...

    def net(self, model: str, phase: str, level: int, stages: Sequence[str], weights: str | None) -> NetPart: ...

    def old_net(self, model: str, weights: str, phase: str) -> NetPart:
        """The deprecated call by position."""

    def solver(self, file: str, solver_class: str | None) -> SolverPart:
        """By get_solver, or of a class such as ``SGDSolver``."""

    def tool(self, arguments: Sequence[str]) -> int:
        """Run one of Caffe's command line tools; its exit status. Raises Unsupported if it is not there."""

    def threads(self) -> set[Thread]:
        """Living threads, but for those that the engine keeps for the whole process."""

    def take_log(self) -> list[tuple[str, str, str]]:
        """Lines since the last call: level (``I``, ``W``, ``E``), source file, text."""
