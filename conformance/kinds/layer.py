"""Kind ``layer``: one layer, forward and backward, in its net as it stands (FORMAT-layer.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import numpy as np

from conformance.bounds import bounds_of
from conformance.cases import Case, Recording
from conformance.compare import BLAS_FACTOR, sum_bound
from conformance.device_formulas import Effect
from conformance.engines import Engine
from conformance.engines.pycaffe import NetPart
from conformance.files import working_directory
from conformance.outcome import Findings, Unsupported

_LAYER = "layer"  # the name that every layer under test has


def play(case: Case, engine: Engine) -> Recording:
    """What FORMAT-layer.md says is recorded, by the same names; ``values["fatal"]`` alone after a refusal."""
    step, net = "setup", None
    with engine.pycaffe(case.upstream, case.mode) as caffe, working_directory(case.folder):
        try:
            if case.seed is not None:
                caffe.set_random_seed(case.seed)
            net = caffe.net("net.prototxt", case.given["phase"], 0, (), None)
            run = _Run(case, net)
            for s, name in enumerate(case.given["steps"]):
                step = f"s{s}"
                _STEPS[name](run, step)
        except engine.Fatal as fatal:
            return Recording({"fatal": _refusal(case, engine, step, fatal.message)})
        finally:
            if net is not None:
                net.close()
    return run.got


def _refusal(case: Case, engine: Engine, step: str, message: str) -> dict[str, str]:
    missing = engine.not_yet(message)
    recorded = case.recorded.values.get("fatal", {}).get("message", "")
    if missing and missing != engine.not_yet(recorded):
        raise Unsupported(missing)
    return {"step": step, "message": message}


class _Run:
    """A case's net, just built, and what it gave so far."""

    def __init__(self, case: Case, net: NetPart) -> None:
        self.given = case.given
        self.arrays = case.given_arrays
        self.net = net
        self.sources: dict[str, str] = {bottom["name"]: bottom["source"] for bottom in case.given["bottoms"]}
        self.untouched = set(self.sources)
        self.params = list(net.params[_LAYER]) if _LAYER in net.params else []
        structure = net.structure()
        self.weights = [structure["blob_loss_weights"][blob] for blob in structure["top_ids"][-1]]
        tops = {top: list(net.blobs[top].shape) for top in self.given["tops"]}
        params = [list(param.shape) for param in self.params]
        self.got = Recording({"tops": tops, "params": params, "loss_weights": self.weights})
        if self.given["params"]:
            for i in range(self.given["params"]):
                self.params[i].data[...] = self.arrays[f"param.{i}"]
        else:
            self._record("setup.param", enumerate(self.params))
        if net.layer_types[-1] == "DummyData":
            self._record("setup.data", self._tops())

    def forward(self, step: str) -> None:
        for name, array in self._given(f"{step}.data."):
            of_parameter = self.sources.get(name) == "Parameter"
            blob = self.net.params[name][0] if of_parameter else self.net.blobs[name]
            if blob.shape != array.shape:
                blob.reshape(*array.shape)
            blob.data[...] = array
        self._mark_diffs()
        before = [param.data.copy() for param in self.params]
        loss = self.net.run_forward(None, None)
        self._record(f"{step}.data", self._tops())
        if any(self.weights):
            self.got.arrays[f"{step}.loss"] = np.array(loss, np.float32)
        changed = [i for i, old in enumerate(before) if not _same_bits(old, self.params[i].data)]
        self._record(f"{step}.param", ((i, self.params[i]) for i in changed))

    def clear_param_diffs(self, step: str) -> None:
        self.net.method("clear_param_diffs")()

    def backward(self, step: str) -> None:
        for name, array in self._given(f"{step}.diff."):
            self.net.blobs[name].diff[...] = array
        bottoms = {name: self.net.blobs[name] for name in self.sources}
        before = {name: _contents(blob, "diff") for name, blob in bottoms.items()}
        self.net.run_backward(None, None)
        written = {name for name, blob in bottoms.items() if not _same_bits(before[name], _contents(blob, "diff"))}
        self.untouched -= written
        self.got.values["untouched"] = [name for name in self.sources if name in self.untouched]
        self._record(f"{step}.diff", bottoms.items(), "diff")
        self._record(f"{step}.param_diff", enumerate(self.params), "diff")

    def _tops(self) -> list[tuple[str, Any]]:
        return [(top, self.net.blobs[top]) for top in self.given["tops"]]

    def _given(self, prefix: str) -> list[tuple[str, np.ndarray]]:
        return [(key.removeprefix(prefix), self.arrays[key]) for key in self.arrays if key.startswith(prefix)]

    def _mark_diffs(self) -> None:
        """Fill diffs that nobody wrote to, so that a backward pass which writes zeros into them shows."""
        for name, source in self.sources.items():
            blob = self.net.blobs[name]
            if source == "Input" and blob.count and not blob.diff.any():
                blob.diff[...] = np.nan

    def _record(self, prefix: str, blobs: Iterable[tuple[Any, Any]], which: str = "data") -> None:
        for name, blob in blobs:
            self.got.arrays[f"{prefix}.{name}"] = _contents(blob, which)


def _contents(blob: Any, which: str) -> np.ndarray:
    """A copy of a blob's data or diff; one without elements may have no memory to ask for."""
    return np.array(getattr(blob, which)) if blob.count else np.zeros(blob.shape, np.float32)


def _same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    return a.shape == b.shape and np.array_equal(a.view(np.uint32), b.view(np.uint32))


_STEPS: dict[str, Callable[[_Run, str], None]] = {
    "forward": _Run.forward,
    "clear_param_diffs": _Run.clear_param_diffs,
    "backward": _Run.backward,
}


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Each group of arrays by its class; a refusal is compared by FORMAT-error.md."""
    recorded = case.recorded.values
    refused, refusal = recorded.get("fatal"), got.values.get("fatal")
    if refused and refusal:
        findings.value("fatal.step", refused["step"], refusal["step"])
        findings.message("fatal.message", refused["message"], refusal["message"])
    elif refused or refusal:
        findings.value("fatal", refused, refusal)
    else:
        _judge_values(recorded, got.values, findings)
        _judge_arrays(case, got, findings)


def _judge_values(recorded: dict[str, Any], got: dict[str, Any], findings: Findings) -> None:
    for key in ("tops", "loss_weights", "params"):
        if key in recorded:
            findings.value(key, recorded[key], got.get(key))
    written = [name for name in recorded.get("untouched", []) if name not in got.get("untouched", [])]
    findings.value("untouched, but written", [], written)


def _judge_arrays(case: Case, got: Recording, findings: Findings) -> None:
    limits, inexact = _Limits(case), _Limits(case.with_exactness("blas"))
    for name, array in case.recorded.arrays.items():
        if name in got.arrays:
            step, group = name.split(".")[:2]
            exactness = "bitwise" if step == "setup" else case.exactness(group)
            bound = 0.0 if exactness == "bitwise" else limits.of(name)
            if step != "setup" and findings.lenient.allows(Effect.ROUNDING, name):
                exactness, bound = "blas", inexact.of_device(name, array)
            findings.array(name, array, got.arrays[name], exactness, bound)
        else:
            findings.value("arrays", name, f"no {name}")
    unread = {f"diff.{name}" for name in case.recorded.values.get("untouched", [])}
    for name in got.arrays.keys() - case.recorded.arrays.keys():
        if name.partition(".")[2] not in unread:
            findings.value("arrays", f"no {name}", name)


class _Limits:
    """How far recorded and our values may be apart, derived when first asked for."""

    def __init__(self, case: Case) -> None:
        self.case = case

    @cached_property
    def bounds(self) -> dict[str, Any]:
        return bounds_of(self.case)

    def of_device(self, name: str, recorded: np.ndarray) -> Callable[[], np.ndarray | float]:
        """The same where a device rounds otherwise than the host; there is a limit for any sum."""

        def limit() -> np.ndarray | float:
            try:
                return np.maximum(self.of(name)(), sum_bound(recorded))
            except (Unsupported, NotImplementedError):  # no formula, since on the host it is exact
                return sum_bound(recorded)

        return limit

    def of(self, name: str) -> Callable[[], np.ndarray | float]:
        """A function for the limit of an array: both values may be off by its bound.

        Where there is none (nothing is computed, or it may be anything) elements must be equal.
        """

        def limit() -> np.ndarray | float:
            if name not in self.bounds:
                return 0.0
            error = self.bounds[name].error
            return BLAS_FACTOR * np.where(np.isfinite(error), error, 0.0)

        return limit
