"""What ``caffe_inside`` (conformance/record/cpp/inside.cpp) offers, of refcaffe: so that the recorder runs on it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

import refcaffe
from conformance.engines.refcaffe_nets import RefcaffeNet
from refcaffe import context
from refcaffe.data import decode
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import to_text


def structure(net: Any) -> dict[str, Any]:
    return RefcaffeNet(net).structure()


def definition(net: Any) -> str:
    return RefcaffeNet(net).definition()


def update(net: Any) -> None:
    net.update()


def learnable(net: Any) -> list[Any]:
    return net.parameters.learnable


def history(solver: Any) -> list[Any]:
    return solver.history


def solver_state(solver: Any) -> dict[str, Any]:
    return {
        "type": solver.type,
        "current_step": solver.current_step,
        "losses": [float(loss) for loss in solver.losses],
        "smoothed_loss": None if solver.smoothed_loss is None else float(solver.smoothed_loss),
        "requested_early_exit": solver.requested_early_exit,
    }


def rate(solver: Any) -> float:
    log, step = logging.getLogger("refcaffe"), solver.current_step
    log.disabled, before = True, log.disabled
    levels = {name: logger.level for name, logger in _children(log)}
    for name in levels:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    rate = float(solver.learning_rate())
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    log.disabled, solver.current_step = before, step
    return rate


def _children(log: logging.Logger) -> list[tuple[str, logging.Logger]]:
    known = logging.root.manager.loggerDict
    return [
        (name, logger)
        for name, logger in known.items()
        if name.startswith(log.name) and isinstance(logger, logging.Logger)
    ]


def solver_param(solver: Any) -> str:
    return to_text(solver.param)


def set_actions(solver: Any, function: Callable[[], str]) -> None:
    solver.set_action_function(lambda: refcaffe.SolverAction[function().upper()])


def rng_next(count: int) -> list[int]:
    return context.current().stream.ahead(count).tolist()


def read_image(file: str, height: int, width: int, color: bool) -> tuple[Any, ...]:
    return _image(decode.read_image(file, height, width, color))


def decode_datum(hexadecimal: str, mode: int) -> tuple[Any, ...]:
    datum = caffe_pb2.Datum.FromString(bytes.fromhex(hexadecimal))
    return _image(decode.pixels_of(np.frombuffer(datum.data, np.uint8), mode))


def _image(pixels: np.ndarray | None) -> tuple[Any, ...]:
    assert pixels is not None
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    return (*pixels.shape[:2], channels, pixels.itemsize, pixels.tobytes().hex())
