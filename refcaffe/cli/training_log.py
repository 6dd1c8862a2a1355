"""What a training log says, ours or original Caffe's: losses, rates and test scores by iteration."""

from __future__ import annotations

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
        if found := _TESTING.search(line):
            at, net = int(found[1]), int(found[2])
        elif found := _SCORE.search(line):
            name = found[1] if net == 0 else f"{found[1]} (net #{net})"
            log.scores[name].append((at, float(found[2])))
        elif found := _LOSS.search(line):
            log.loss.append((int(found[1]), float(found[2])))
        elif found := _RATE.search(line):
            log.rate.append((int(found[1]), float(found[2])))
    return log
