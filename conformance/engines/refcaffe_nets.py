"""pycaffe as refcaffe offers it: nets, solvers, tools and the log."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import refcaffe
from conformance.outcome import Unsupported
from refcaffe import context
from refcaffe.alias import as_caffe
from refcaffe.kernels.parallel import WORKER_NAME

_MISSING = (
    (re.compile(r"Unknown layer type: (\S+) \(known"), "layer type {}"),
    (re.compile(r"Unknown solver type: (\S+) \(known"), "solver type {}"),
    (re.compile(r"(.*not (?:yet supported|supported yet).*)"), "{}"),
)
_CALLBACKS = ("before_forward", "after_forward", "before_backward", "after_backward")
_PHASES = ("TRAIN", "TEST")


def missing_feature(message: str) -> str | None:
    """What refcaffe does not have yet, if it refused something with this message for that reason."""
    for pattern, text in _MISSING:
        found = pattern.search(message)
        if found:
            return text.format(found[1])
    return None


class RefcaffeNet:
    """``conformance.engines.pycaffe.NetPart`` on a refcaffe net."""

    def __init__(self, net: Any) -> None:
        self.wrapped = net

    @property
    def blobs(self) -> Any:
        return self.wrapped.blobs

    @property
    def params(self) -> Any:
        return self.wrapped.params

    @property
    def layer_types(self) -> list[str]:
        return [layer.type for layer in self.wrapped.all_layers]

    def structure(self) -> dict[str, Any]:
        net = self.wrapped
        parameters = net.parameters
        return {
            "name": net.name,
            "phase": _PHASES[net.phase],
            "layer_names": list(net.layer_names),
            "layer_types": self.layer_types,
            "layer_phases": [_PHASES[layer.phase] for layer in net.all_layers],
            "layer_param_shapes": [[list(blob.shape) for blob in layer.blobs] for layer in net.all_layers],
            "layer_param_propagate_down": [
                [bool(layer.wants_param_diff(i)) for i in range(len(layer.blobs))] for layer in net.all_layers
            ],
            "bottom_ids": net.bottom_ids,
            "top_ids": net.top_ids,
            "bottom_need_backward": net.bottom_need_backward,
            "layer_need_backward": net.layer_need_backward,
            "param_ids": net.param_ids,
            "blob_names": list(net.blob_names),
            "blob_shapes": [list(blob.shape) for blob in net.all_blobs],
            "blob_loss_weights": list(net.loss_weights),
            "blob_need_backward": net.blob_need_backward,
            "inputs": net.input_ids,
            "outputs": net.output_ids,
            "param_owners": parameters.owners,
            "param_display_names": parameters.display_names,
            "learnable_param_ids": parameters.learnable_ids,
            "num_learnable": len(parameters.learnable),
            "params_lr": parameters.lr,
            "params_weight_decay": parameters.decay,
            "has_params_lr": parameters.has_lr,
            "has_params_decay": parameters.has_decay,
            "memory_used": net.memory_used,
            "input_names": list(net.inputs),
            "output_names": list(net.outputs),
        }

    def definition(self) -> str:
        from refcaffe.proto.io import to_text

        proto = self.wrapped.to_proto()
        for layer in proto.layer:
            layer.ClearField("blobs")
        return to_text(proto)

    def run_forward(self, start: str | None, end: str | None) -> float:
        return float(self.wrapped.forward_from_to(self._number(start, 0), self._number(end, -1)))

    def run_backward(self, start: str | None, end: str | None) -> None:
        self.wrapped.backward_from_to(self._number(start, -1), self._number(end, 0))

    def _number(self, layer: str | None, default: int) -> int:
        if layer is not None:
            return self.wrapped.layer_names.index(layer)
        return default if default >= 0 else len(self.wrapped.all_layers) + default

    def watch(self, note: Callable[[str, int], None]) -> None:
        for when in _CALLBACKS:
            getattr(self.wrapped, when)(lambda i, when=when: note(when, i))

    def before_pass(self, function: Callable[[], None]) -> None:
        self.wrapped.before_forward(lambda i: function() if i == 0 else None)

    def update(self) -> None:
        self.wrapped.update()

    def method(self, name: str) -> Callable[..., Any]:
        if not hasattr(self.wrapped, name):
            raise Unsupported(f"refcaffe's Net.{name}")
        return getattr(self.wrapped, name)

    def share_with(self, other: RefcaffeNet) -> None:
        self.wrapped.share_with(other.wrapped)

    def close(self) -> None:
        self.wrapped.close()


class RefcaffeSolver:
    """``conformance.engines.pycaffe.SolverPart`` on a refcaffe solver."""

    def __init__(self, solver: Any) -> None:
        self.wrapped = solver
        self.net = RefcaffeNet(solver.net)
        self.test_nets = [RefcaffeNet(net) for net in solver.test_nets]
        self.learnable = solver.net.parameters.learnable
        self.history = solver.history

    def __getattr__(self, name: str) -> Any:  # type, iter, losses, smoothed_loss, lr, step, solve, snapshot …
        return getattr(self.wrapped, name)

    @property
    def current_step(self) -> int:
        return self.wrapped.current_step

    @current_step.setter
    def current_step(self, step: int) -> None:
        self.wrapped.current_step = step

    @property
    def clip_gradients(self) -> float:
        return self.wrapped.param.clip_gradients

    @clip_gradients.setter
    def clip_gradients(self, limit: float) -> None:
        self.wrapped.param.clip_gradients = limit

    def param_text(self) -> str:
        from refcaffe.proto.io import to_text

        return to_text(self.wrapped.param)

    def param(self) -> Any:
        return self.wrapped.param

    def share_weights(self, net: RefcaffeNet) -> None:
        self.wrapped.share_weights(net.wrapped)

    def set_actions(self, ask: Callable[[], str]) -> None:
        self.wrapped.set_action_function(lambda: refcaffe.SolverAction[ask().upper()])

    @contextmanager
    def watch(
        self, on_gradients: Callable[[], None], on_rate: Callable[[Any], Any], on_updated: Callable[[], None]
    ) -> Iterator[None]:
        solver = self.wrapped
        learning_rate, apply_update = solver.learning_rate, solver.apply_update
        callback = (lambda: None, on_gradients)

        def update() -> None:
            apply_update()
            on_updated()

        solver.add_callback(*callback)
        solver.learning_rate = lambda: solver.dtype.type(on_rate(learning_rate()))
        solver.apply_update = update
        try:
            yield
        finally:
            solver.callbacks.remove(callback)
            del solver.learning_rate, solver.apply_update

    def close(self) -> None:
        self.wrapped.close()


class _Log(logging.Handler):
    """Keeps what refcaffe logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        level = "E" if record.levelno >= logging.ERROR else "W" if record.levelno >= logging.WARNING else "I"
        self.lines.append((level, record.name.removeprefix("refcaffe."), record.getMessage()))


class RefcaffePycaffe:
    """``conformance.engines.pycaffe.Pycaffe``. Inside the ``with`` block logs are kept."""

    def __enter__(self) -> RefcaffePycaffe:
        self._log = _Log()
        self._logger = logging.getLogger("refcaffe")
        self._before = self._logger.level, self._logger.propagate
        self._logger.addHandler(self._log)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        self._alias = as_caffe()  # Python layers of the cases import caffe
        self._alias.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._alias.__exit__(kind, error, at)
        level, propagate = self._before
        self._logger.removeHandler(self._log)
        self._logger.setLevel(level)
        self._logger.propagate = propagate

    def set_random_seed(self, seed: int) -> None:
        context.current().set_random_seed(seed)

    def net(self, model: str, phase: str, level: int, stages: Sequence[str], weights: str | None) -> RefcaffeNet:
        number = _PHASES.index(phase)
        return RefcaffeNet(refcaffe.Net(model, number, level=level, stages=list(stages), weights=weights))

    def old_net(self, model: str, weights: str, phase: str) -> RefcaffeNet:
        return RefcaffeNet(refcaffe.Net(model, weights, _PHASES.index(phase)))

    def solver(self, file: str, solver_class: str | None) -> RefcaffeSolver:
        if solver_class is None:
            return RefcaffeSolver(refcaffe.get_solver(file))
        if not hasattr(refcaffe, solver_class):
            raise Unsupported(f"refcaffe.{solver_class}")
        return RefcaffeSolver(getattr(refcaffe, solver_class)(file))

    def tool(self, arguments: Sequence[str]) -> int:
        from refcaffe.cli import main

        if arguments[0] not in {**main.BREW, **main.TOOLS, **main.OURS}:
            raise Unsupported(f"the tool {arguments[0]}")
        return main.main(list(arguments))

    def threads(self) -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if not thread.name.startswith(WORKER_NAME)}

    def take_log(self) -> list[tuple[str, str, str]]:
        lines, self._log.lines = self._log.lines, []
        return lines
