"""What a training log says, ours (text or JSON) or original Caffe's: losses, rates and test scores by iteration."""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

_NUMBER = r"([-+]?(?:\d[\d.]*(?:[eE][-+]?\d+)?|inf|nan))"
_LOSS = re.compile(rf"Iteration (\d+)(?: \(.*\))?, loss = {_NUMBER}")
_RATE = re.compile(rf"Iteration (\d+), lr = {_NUMBER}")
_TESTING = re.compile(r"Iteration (\d+), Testing net \(#(\d+)\)")
_SCORE = re.compile(rf"Test net output #\d+: (\S+) = {_NUMBER}")

Curve = list[tuple[int, float]]


@dataclass
class TrainingLog:
    """Curves as (iteration, value): ``loss`` (smoothed, as displayed), ``rate``, and ``scores`` by test output."""

    loss: Curve = field(default_factory=list)
    rate: Curve = field(default_factory=list)
    scores: dict[str, Curve] = field(default_factory=lambda: defaultdict(list))


def parse(lines: Iterable[str]) -> TrainingLog:
    """Read the lines of a log; lines that say nothing of a run are passed over."""
    log = TrainingLog()
    at, net = 0, 0
    for line in lines:
        if line.startswith("{"):
            _add_event(log, line)
        elif found := _TESTING.search(line):
            at, net = int(found[1]), int(found[2])
        elif found := _SCORE.search(line):
            log.scores[_score_name(found[1], net)].append((at, float(found[2])))
        elif found := _LOSS.search(line):
            log.loss.append((int(found[1]), float(found[2])))
        elif found := _RATE.search(line):
            log.rate.append((int(found[1]), float(found[2])))
    return log


def _score_name(output: str, net: int) -> str:
    return output if net == 0 else f"{output} (net #{net})"


def _add_event(log: TrainingLog, line: str) -> None:
    """One line of ``--log_json``; the last may be cut off."""
    try:
        event = json.loads(line)
    except ValueError:
        return
    at = event.get("iteration", 0)
    if event.get("event") == "train":
        for curve, key in ((log.loss, "loss"), (log.rate, "lr")):
            if event.get(key) is not None:
                curve.append((at, event[key]))
    elif event.get("event") == "test":
        for output, values in event["scores"].items():
            name = _score_name(output, event["net"])
            for value in values if isinstance(values, list) else [values]:
                log.scores[name].append((at, math.nan if value is None else value))
