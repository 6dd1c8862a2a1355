"""The training loop: iterations, tests, display, snapshots."""

from __future__ import annotations

import builtins
import logging
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.checks import Checker, CheckError, shown
from refcaffe.kernels.parallel import calculation
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import to_text
from refcaffe.proto.strings import as_text
from refcaffe.solvers.nets import make_test_nets, make_train_net
from refcaffe.solvers.read import read_solver_param
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import SolverParameter

_check = Checker("solver.cpp")
_check_factory = Checker("solver_factory.hpp")
_log = logging.getLogger("refcaffe.solver.cpp")


class SolverAction(Enum):
    """What somebody outside asks a running solver to do."""

    NONE = 0
    STOP = 1
    SNAPSHOT = 2


class Solver:
    """What every solver type shares; a type adds ``learning_rate``, ``apply_update`` and its state in snapshots.

    ``param`` is a SolverParameter or the name of a text file. Public: ``net``, ``test_nets``, ``iter`` (updates done),
    ``current_step``, ``losses`` and ``smoothed_loss`` (of the present ``step``), ``rate`` (of the last update),
    ``callbacks`` (pairs of functions: one called before the forward pass, one when the gradients are ready),
    ``listeners`` (functions that are told what is displayed, tested and saved), ``requested_early_exit``.
    """

    type: ClassVar[str] = ""

    def __init__(self, param: SolverParameter | str, dtype: DTypeLike = np.float32) -> None:
        given = read_solver_param(param) if isinstance(param, str) else param
        self.param = caffe_pb2.SolverParameter()
        self.param.CopyFrom(given)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.iter = 0
        self.current_step = 0
        self.losses: list[Any] = []
        self.smoothed_loss: Any = None  # unknown before the first step
        self.rate: Any = None  # none before the first update
        self.requested_early_exit = False
        self.listeners: list[Callable[[dict[str, Any]], Any]] = []
        self.callbacks: list[tuple[Callable[[], Any], Callable[[], Any]]] = []
        self._ask: Callable[[], SolverAction] | None = None
        self._displayed_at = time.monotonic()
        self._displayed_iter = 0
        self._info("Initializing solver from parameters: \n%s", lambda: to_text(self.param))
        _check.ge(self.param.average_loss, 1, "param_.average_loss() >= 1", "average_loss should be non-negative.")
        self._check_snapshot_prefix()
        here = context.current()
        if self.param.random_seed >= 0:
            here.set_random_seed(self.param.random_seed + here.solver_rank)
        self.net = make_train_net(self.param, self.dtype)
        try:
            self.test_nets = make_test_nets(self.param, self.dtype)
        except BaseException:
            self.net.close()
            raise
        self._info("Solver scaffolding done.")

    def _info(self, text: str, *args: Any) -> None:
        if _log.isEnabledFor(logging.INFO) and context.current().root_solver:
            _log.info(text, *(arg() if callable(arg) else arg for arg in args))

    def tell(self, event: str, **facts: Any) -> None:
        """Let every listener know of an event: a dictionary with ``event``, ``iteration`` and the facts."""
        for listener in self.listeners:
            listener({"event": event, "iteration": self.iter, **facts})

    # --- what a type fills in

    def learning_rate(self) -> Any:
        """The rate of the present iteration."""
        raise NotImplementedError(f"{type(self).__name__}.learning_rate")

    def apply_update(self) -> None:
        """Turn gradients into updates, apply them, and count the iteration."""
        raise NotImplementedError(f"{type(self).__name__}.apply_update")

    def snapshot(self) -> None:
        """Write the model and the solver's state."""
        raise NotImplementedError(f"{type(self).__name__}.snapshot")

    def restore(self, path: str) -> None:
        """Take model and state from the files of a snapshot."""
        raise NotImplementedError(f"{type(self).__name__}.restore")

    # --- training

    @calculation  # a run that diverges does so without further words
    def step(self, iterations: int) -> None:
        """Train for so many iterations, or until a stop is asked for."""
        start = self.iter
        self.losses = []
        self.smoothed_loss = self.dtype.type(0)
        self._displayed_at = time.monotonic()
        while self.iter < start + iterations:
            self.net.clear_param_diffs()
            interval = self.param.test_interval
            if interval and self.iter % interval == 0 and (self.iter > 0 or self.param.test_initialization):
                if context.current().root_solver:
                    self.test_all()
                if self.requested_early_exit:
                    break
            for on_start, _ in self.callbacks:
                on_start()
            display = self.param.display and self.iter % self.param.display == 0
            self.net.debug_info = bool(display and self.param.debug_info)
            loss = self.dtype.type(0)
            for _ in range(self.param.iter_size):
                loss += self.net.forward_backward()
            loss /= self.dtype.type(self.param.iter_size)
            self._smooth(loss, start)
            if display:
                self._display()
            for _, on_gradients_ready in self.callbacks:
                on_gradients_ready()
            self.apply_update()
            if display and self.listeners:
                facts = {"loss": self.smoothed_loss, "last_loss": loss, "lr": self.rate}
                self.tell("train", iteration=self.iter - 1, **facts, outputs=_named(self.net, *_outputs(self.net)))
            action = self._requested_action()
            every = self.param.snapshot
            due = every and self.iter % every == 0 and context.current().root_solver
            if due or action is SolverAction.SNAPSHOT:
                self.snapshot()
            if action is SolverAction.STOP:
                self.requested_early_exit = True
                break

    def _smooth(self, loss: Any, start: int) -> None:
        """Put a loss into the moving average over the last ``average_loss`` iterations."""
        window, real = self.param.average_loss, self.dtype.type
        if len(self.losses) < window:
            self.losses.append(loss)
            size = len(self.losses)
            self.smoothed_loss = (self.smoothed_loss * real(size - 1) + loss) / real(size)
        else:
            i = (self.iter - start) % window
            self.smoothed_loss += (loss - self.losses[i]) / real(window)
            self.losses[i] = loss

    def _display(self) -> None:
        lapse = time.monotonic() - self._displayed_at
        speed = (self.iter - self._displayed_iter) / (lapse or 1)
        text = "Iteration %d (%g iter/s, %gs/%d iters), loss = %s"
        self._info(text, self.iter, speed, lapse, self.param.display, shown(self.smoothed_loss))
        self._displayed_at, self._displayed_iter = time.monotonic(), self.iter
        for number, (blob, value) in enumerate(zip(*_outputs(self.net), strict=True)):
            self._info("    Train net output #%d: %s", number, self._output(self.net, blob, value))

    def _output(self, net: Net, blob: int, value: Any) -> str:
        weight = self.dtype.type(net.loss_weights[blob])
        weighted = f" (* {shown(weight)} = {shown(weight * value)} loss)" if weight else ""
        return f"{net.blob_names[blob]} = {shown(value)}{weighted}"

    @calculation
    def solve(self, resume_file: str | None = None) -> None:
        """Train until ``max_iter``, from a snapshot's state if one is given; snapshot, display and test at the end."""
        _check(context.current().root_solver, "Caffe::root_solver()")
        _log.info("Solving %s", self.net.name)
        _log.info("Learning Rate Policy: %s", self.param.lr_policy)
        self.requested_early_exit = False
        if resume_file is not None:
            _log.info("Restoring previous solver status from %s", resume_file)
            self.restore(resume_file)
        start, every = self.iter, self.param.snapshot
        self.step(self.param.max_iter - self.iter)
        if self.param.snapshot_after_train and not (every and self.iter % every == 0):
            self.snapshot()
        if self.requested_early_exit:
            _log.info("Optimization stopped early.")
            return
        if self.param.display and self.iter % self.param.display == 0:
            self._smooth(self.net.forward_from_to(0, len(self.net.all_layers) - 1), start)
            _log.info("Iteration %d, loss = %s", self.iter, shown(self.smoothed_loss))
            self.tell("train", loss=self.smoothed_loss)
        if self.param.test_interval and self.iter % self.param.test_interval == 0:
            self.test_all()
        _log.info("Optimization Done.")

    # --- testing

    def test_all(self) -> None:
        """Test every test net, unless a stop is asked for."""
        for number in range(len(self.test_nets)):
            if self.requested_early_exit:
                break
            self.test(number)

    @calculation
    def test(self, number: int) -> list[float] | None:
        """Score one test net with the present parameters: the mean of every output value, or None if stopped."""
        _check(context.current().root_solver, "Caffe::root_solver()")
        _log.info("Iteration %d, Testing net (#%d)", self.iter, number)
        net, batches = self.test_nets[number], self.param.test_iter[number]
        net.share_with(self.net)
        loss = self.dtype.type(0)
        outputs: list[int] = []
        scores = np.zeros(0, self.dtype)
        for batch in range(batches):
            self._act_in_test()
            if self.requested_early_exit:
                _log.info("Test interrupted.")
                return None
            loss += net.forward_from_to(0, len(net.all_layers) - 1)
            blobs, values = _outputs(net)
            if batch == 0:
                outputs, scores = blobs, values
            else:  # a later batch may be of another size
                scores[: values.size] += values[: scores.size]
        loss /= self.dtype.type(batches)
        means = scores / self.dtype.type(batches)
        if self.param.test_compute_loss:
            _log.info("Test loss: %s", shown(loss))
        for i, (blob, mean) in enumerate(zip(outputs, means, strict=True)):
            _log.info("    Test net output #%d: %s", i, self._output(net, blob, mean))
        computed = {"test_loss": loss} if self.param.test_compute_loss else {}
        self.tell("test", net=number, scores=_named(net, outputs, means), **computed)
        return [float(mean) for mean in means]

    def _act_in_test(self) -> None:
        action = self._requested_action()
        while action is not SolverAction.NONE:
            if action is SolverAction.SNAPSHOT:
                self.snapshot()
            else:
                self.requested_early_exit = True
            action = self._requested_action()

    # --- outside

    def set_action_function(self, ask: Callable[[], SolverAction] | None) -> None:
        """Have a function asked, after every iteration and before every test batch, what to do."""
        self._ask = ask

    def _requested_action(self) -> SolverAction:
        return SolverAction.NONE if self._ask is None else self._ask()

    def add_callback(self, on_start: Callable[[], Any], on_gradients_ready: Callable[[], Any]) -> None:
        """Have two functions called in every iteration: before the forward pass, and before the update."""
        self.callbacks.append((on_start, on_gradients_ready))

    def share_weights(self, net: Net) -> None:
        """Let a net use the parameters of the train net."""
        net.share_with(self.net)

    @property
    def lr(self) -> float:
        """The rate of the present iteration; reading it may move ``current_step``, as upstream's does."""
        return float(self.learning_rate())

    def snapshot_filename(self, extension: str) -> str:
        return f"{as_text(self.param.snapshot_prefix)}_iter_{self.iter}{extension}"

    def _check_snapshot_prefix(self) -> None:
        """Refuse to train for hours towards a snapshot that cannot be written."""
        if not (self.param.snapshot and context.current().root_solver):
            return
        text = "In solver params, snapshot is specified but snapshot_prefix is not"
        _check(self.param.HasField("snapshot_prefix"), "param_.has_snapshot_prefix()", text)
        probe = Path(self.snapshot_filename(".tempfile"))
        try:
            probe.touch()
            probe.unlink()
        except (OSError, ValueError) as error:
            text = f"Cannot write to snapshot prefix '{as_text(self.param.snapshot_prefix)}'.  "
            text += "Make sure that the directory exists and is writable."
            raise CheckError(text, "solver.cpp") from error

    def close(self) -> None:
        """End the threads of all of its nets."""
        for net in [self.net, *self.test_nets]:
            net.close()

    def __enter__(self) -> Solver:
        return self

    def __exit__(
        self, kind: builtins.type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()


def _outputs(net: Net) -> tuple[list[int], np.ndarray]:
    """Every value of every output of a net, in order, after the blob that each belongs to."""
    results = [net.all_blobs[blob].cpu_data().reshape(-1) for blob in net.output_ids]
    blobs = [blob for blob, result in zip(net.output_ids, results, strict=True) for _ in range(result.size)]
    return blobs, np.concatenate(results) if results else np.zeros(0, net.dtype)


def _named(net: Net, blobs: list[int], values: np.ndarray) -> dict[str, Any]:
    """Values by the names of their blobs: a number, or a list of them."""
    found: dict[str, list[Any]] = {}
    for blob, value in zip(blobs, values, strict=True):
        found.setdefault(net.blob_names[blob], []).append(value)
    return {name: numbers if len(numbers) > 1 else numbers[0] for name, numbers in found.items()}


# --- the registry

_registry: dict[str, builtins.type[Solver]] = {}
S = TypeVar("S", bound="builtins.type[Solver]")


def register(name: str) -> Callable[[S], S]:
    """Class decorator: make a solver type known by its Caffe name."""

    def add(cls: S) -> S:
        text = f"Solver type {name} already registered."
        _check_factory.eq(int(name in _registry), 0, "registry.count(type) == 0", text)
        cls.type = name
        _registry[name] = cls
        return cls

    return add


def create(param: SolverParameter | str, dtype: DTypeLike = np.float32) -> Solver:
    """A solver of the type that the definition names (pycaffe: ``get_solver``)."""
    if isinstance(param, str):
        with telling(lambda: f"solver definition {param}"):
            return create(read_solver_param(param), dtype)
    text = f"Unknown solver type: {param.type} (known types: {', '.join(sorted(_registry))})"
    _check_factory.eq(int(param.type in _registry), 1, "registry.count(type) == 1", text)
    return _registry[param.type](param, dtype)
