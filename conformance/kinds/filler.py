"""Kind ``filler``: what is filled when a net is built, and in its forward passes (FORMAT-filler.md)."""

from __future__ import annotations

from typing import Any

from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.engines.pycaffe import NetPart
from conformance.files import working_directory
from conformance.outcome import Findings, Unsupported


def play(case: Case, engine: Engine) -> Recording:
    """The fills of ``given.fills`` as the net's blobs hold them; ``values["fatal"]`` alone where one is refused."""
    got = Recording()
    step, net = "setup", None
    with engine.pycaffe(case.upstream, case.mode) as caffe, working_directory(case.folder):
        try:
            caffe.set_random_seed(case.seed or 0)
            net = caffe.net("net.prototxt", "TRAIN", 0, (), None)
            _take_fills(case, net, got, None)
            for number in range(case.given["forwards"]):
                step = f"forward {number}"
                net.run_forward(None, None)
                _take_fills(case, net, got, number)
                for top in case.given["tops"]:
                    got.arrays[f"forward{number}.data.{top}"] = net.blobs[top].data.copy()
        except engine.Fatal as fatal:
            recorded = case.recorded.values.get("fatal", {}).get("message", "")
            missing = engine.not_yet(fatal.message)
            if missing and missing != engine.not_yet(recorded):
                raise Unsupported(missing) from fatal
            return Recording({"fatal": {"step": step, "message": fatal.message}})
        finally:
            if net is not None:
                net.close()
    return got


def _take_fills(case: Case, net: NetPart, got: Recording, number: int | None) -> None:
    """Copy what was filled in forward pass ``number``, or (None) when the net was built."""
    for i, fill in enumerate(case.given["fills"]):
        if not fill.get("discarded") and fill.get("forward") == number:
            got.arrays[f"fill.{i}"] = _blob(fill, net).data.copy()


def _blob(fill: dict[str, Any], net: NetPart) -> Any:
    return net.params[fill["layer"]][fill["param"]] if "layer" in fill else net.blobs[fill["blob"]]


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Everything is bitwise; a refusal is compared by FORMAT-error.md."""
    recorded = case.recorded
    refused, refusal = recorded.values.get("fatal"), got.values.get("fatal")
    if refused and refusal:
        findings.value("fatal.step", refused["step"], refusal["step"])
        findings.message("fatal.message", refused["message"], refusal["message"])
    elif refused or refusal:
        findings.value("fatal", refused, refusal)
    else:
        findings.arrays(recorded.arrays, got.arrays)
