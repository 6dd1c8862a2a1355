"""Where Caffe computes something else on a device than on the host, and what that means for cases recorded on the host.

Cases of the kinds layer, net, solver, snapshot and error may be run in GPU mode (``--device fake``). They are compared
as on the host, but for the rules below; kind ``gpumode`` has recordings of what a device's formulas give. The reasons
are upstream's own code: what its ``.cu`` files do otherwise than its ``.cpp`` files.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from conformance.cases import Case
from conformance.compare import OTHER_LIBRARY_ULPS, SUM_ULPS

KINDS = ("layer", "net", "solver", "snapshot", "error", "filler")


class Effect(Enum):
    """What is still compared."""

    ZEROS = "all, but 0 and -0 are equal"
    ROUNDING = "all, what was exact within the rounding of a sum"
    VALUES = "all but the numbers"
    REFUSAL = "nothing: the host refuses what a device does, or the other way round"


@dataclass(frozen=True)
class Rule:
    """One difference. It holds for cases with a layer or solver of ``types`` whose definitions match ``pattern``, and,

    if there is a condition on what is given, whose arrays meet it. ``gradients``: it is only about those.
    """

    types: tuple[str, ...]
    effect: Effect
    reason: str
    pattern: str = ""
    gradients: bool = False
    given: Callable[[dict[str, np.ndarray]], bool] | None = None


def _any(test: Callable[[np.ndarray], Any], name: str = "") -> Callable[[dict[str, np.ndarray]], bool]:
    """Whether any element of the float arrays whose names contain ``name`` meets a test."""
    return lambda arrays: any(
        bool(np.any(test(array))) for key, array in arrays.items() if name in key and array.dtype.kind == "f"
    )


def _outside(array: np.ndarray) -> np.ndarray:
    return (array < 0) | (array > 1)


def _fractional(array: np.ndarray) -> np.ndarray:
    return (array != 0) & (array != 1)


RULES = (
    Rule(("ReLU", "PReLU"), Effect.ZEROS, "chooses x or slope * x, and adds nothing to it"),
    Rule(("ELU",), Effect.ZEROS, "chooses one of the two terms"),
    Rule(("Power",), Effect.ZEROS, "multiplies by the top's gradient, even a slope of 0"),
    Rule(("Scale",), Effect.ZEROS, "plain products, where BLAS sets to 0 what it scales by 0"),
    Rule(("Clip",), Effect.VALUES, "not-a-numbers become max", given=_any(np.isnan)),
    Rule(("Eltwise",), Effect.VALUES, "ties go to the later bottom", r"operation:\s*MAX", gradients=True),
    Rule(("Im2col",), Effect.ROUNDING, "pixels gather, so sums have another order", gradients=True),
    Rule(("PReLU",), Effect.ROUNDING, "slopes' gradients are summed over images first", gradients=True),
    Rule(("LSTMUnit", "LSTM"), Effect.ROUNDING, "sigmoid and tanh in float, tanh(x) as 2 sigmoid(2x) - 1"),
    Rule(
        ("LSTMUnit", "LSTM"), Effect.VALUES,
        "the slope of the forget gate is its own, not that of its product with cont",
        gradients=True, given=_any(_fractional, "cont"),
    ),
    Rule(("ContrastiveLoss",), Effect.VALUES, "the legacy version forgets to multiply by the difference",
         r"legacy_version:\s*true", gradients=True),
    Rule(("SigmoidCrossEntropyLoss",), Effect.VALUES, "sums absolute values of terms", given=_any(_outside, "t")),
    Rule(("Accuracy",), Effect.VALUES, "counts in the labels' diff", gradients=True),
    Rule(("Accuracy",), Effect.REFUSAL, "only a gradient for the labels is refused",
         r"force_backward:\s*true|type: \"Accuracy\"[^}]*loss_weight"),
    Rule(("Dropout",), Effect.VALUES, "draws from the device's generator", "TRAIN"),
    Rule(("Pooling", "SPP"), Effect.REFUSAL, "stochastic pooling is there", r"pool:\s*STOCHASTIC"),
    Rule(("BatchReindex",), Effect.REFUSAL, "no rows: tables without memory",
         given=lambda arrays: any(array.size == 0 for array in arrays.values())),
    Rule(("SGD", "Nesterov", "AdaGrad", "RMSProp", "Adam", "AdaDelta"), Effect.ROUNDING,
         "updates in one kernel, where BLAS has fused multiply-add"),
)  # fmt: skip

ON_CUDA = Rule(("everything",), Effect.ROUNDING, "has CUDA's functions, and sums in their own order")
"""A device in host memory has the host's libm and BLAS."""


class Leniency:
    """The rules that hold for a case, which runs on a device unless ``device`` is ``cpu``."""

    def __init__(self, rules: tuple[Rule, ...] = (), device: str = "cpu", ulps: int = SUM_ULPS) -> None:
        self.rules = rules
        self.device = device
        self.ulps = ulps  # what CUDA's roundings may add up to, in units in the last place of an array's largest number

    @property
    def reasons(self) -> str:
        return "; ".join(f"on a device {rule.types[0]} {rule.reason}" for rule in self.rules)

    @property
    def refusal(self) -> bool:
        """Whether nothing is compared."""
        return any(rule.effect is Effect.REFUSAL for rule in self.rules)

    def allows(self, effect: Effect, where: str) -> bool:
        """Whether an effect reaches what is called ``where``."""
        return any(rule.effect is effect and (not rule.gradients or _is_gradient(where)) for rule in self.rules)


def _is_gradient(where: str) -> bool:
    """Whether a name is that of a gradient, or of what training made of it."""
    return re.search(r"diff|grad|param|history|loss", where) is not None


def leniency(case: Case, device: str) -> Leniency:
    """The rules that hold for a case when it runs on a device: ``fake`` or ``cuda``; on ``cpu`` there are none."""
    if device == "cpu" or case.problem:
        return Leniency()
    always = (ON_CUDA,) if device == "cuda" else ()
    ulps = SUM_ULPS if "layer" in (case.kind, case.group) else OTHER_LIBRARY_ULPS
    if case.kind not in KINDS:
        return Leniency(always, device, ulps)
    given = case.fresh().given_arrays  # not to be kept by the case
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in case.folder.rglob("*.prototxt")]
    ops = case.given.get("ops", [case.given])
    phases = {str(op.get("phase", "TRAIN")) for op in ops}
    classes = [f"type: {op['class']}" for op in ops if op.get("class")]
    default = ["type: SGD"] if case.kind in ("solver", "snapshot") else []
    text = "\n".join([*texts, *classes, *default, *phases])
    there = {_plain(word) for word in re.findall(r"(?:\btype|solver_type):\s*\"?(\w+)", text)}
    held = (rule for rule in RULES if any(_plain(name) in there for name in rule.types))
    held = (rule for rule in held if re.search(rule.pattern, text))
    return Leniency((*always, *(rule for rule in held if rule.given is None or rule.given(given))), device, ulps)


def _plain(name: str) -> str:
    """A type's name without what differs between the versions of definitions."""
    return name.replace("_", "").lower().removesuffix("solver")
