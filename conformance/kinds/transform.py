"""Kind ``transform``: DataTransformer, called directly (FORMAT-transform.md).

Where an image had to be decoded in a way that depends on the library, the engine's own pixels must be within
``CODEC_LEVELS`` of the recorded ones, and from the recorded ones on everything is bitwise.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.engines import Engine
from conformance.engines.pipeline import Pipeline, TransformerPart
from conformance.files import fresh_folder, working_directory
from conformance.images import judge_decoded
from conformance.outcome import Findings, Unsupported

_NEXT = 3  # words of a transformer's own stream that an init_rand records
_OVERLOADS = ("datums", "datum", "mats", "mat", "blob")

Op = dict[str, Any]


def play(case: Case, engine: Engine) -> Recording:
    """The operations, until one is refused; ``values["decoded"]``: names, files and the engine's own pixels."""
    with fresh_folder(case) as folder, engine.pipeline(case.upstream, case.mode) as caffe, working_directory(folder):
        run = _Run(case, caffe)
        encoded = {
            name: caffe.datum(case.given_arrays[name.partition("/")[2]].tobytes()).data.tobytes()
            for name in case.recorded.arrays
            if name.startswith("decoded/")
        }
        recorded = {data: case.recorded.arrays[name] for name, data in encoded.items()}
        with caffe.recorded_codec(recorded, {}) as own:
            try:
                run.run()
            except engine.Fatal as fatal:
                run.got.values["fatal"] = {"op": run.number, "text": fatal.message}
        run.got.values["log"] = [[level, text] for level, _, text in caffe.take_log() if level != "I"]
        run.got.values["decoded"] = encoded, own
    return run.got


class _Run:
    def __init__(self, case: Case, caffe: Pipeline) -> None:
        self.case, self.caffe = case, caffe
        self.got = Recording({"results": []})
        self.number = -1

    def run(self) -> None:
        given, results = self.case.given, self.got.values["results"]
        self.caffe.set_random_seed(self.case.seed or 0)
        self.transformer: TransformerPart = self.caffe.transformer(given["param"], given["phase"])
        for self.number, op in enumerate(given["ops"]):
            operation = _OPERATIONS.get(op["op"])
            if operation is None:
                raise Unsupported(f"the suite has no operation {op['op']!r}")
            results.append({"op": op["op"]} | operation(self, op))
        self.got.values["global_next"] = self.caffe.words_ahead(1)[0]

    def given(self, op: Op) -> tuple[str, Any]:
        """The overload to call, and what with."""
        what = next((key for key in _OVERLOADS if key in op), None)
        if what is None:
            raise Unsupported(f"an overload of {op['op']} that the suite does not know")
        names = op[what] if isinstance(op[what], list) else [op[what]]
        things = [self._make(what, name) for name in names]
        return what, things if what.endswith("s") else things[0]

    def _make(self, what: str, name: str) -> Any:
        if name not in self.case.given_arrays:
            raise CaseError(f"{self.case.folder / 'given.npz'}: no array {name!r}, which an operation names")
        array = self.case.given_arrays[name]
        if what.startswith("mat"):
            return array
        if what.startswith("datum"):
            return self.caffe.datum(array.tobytes())
        blob = self.caffe.blob(array.shape)
        blob.mutable_cpu_data()[...] = array
        return blob

    def init_rand(self, op: Op) -> dict[str, Any]:
        self.transformer.init_rand()
        words = self.transformer.words_ahead(_NEXT)
        own = {"has_rng": False} if words is None else {"has_rng": True, "rng_next": words}
        return own | {"global_next": self.caffe.words_ahead(1)[0]}

    def rand(self, op: Op) -> dict[str, Any]:
        return {"value": self.transformer.rand(op["n"])}

    def infer(self, op: Op) -> dict[str, Any]:
        return {"shape": list(self.transformer.infer(*self.given(op)))}

    def transform(self, op: Op) -> dict[str, Any]:
        what, given = self.given(op)
        top = self.caffe.blob(op["top"] or None)
        if top.count:
            top.mutable_cpu_data().fill(op.get("fill", 0))
        draws, places = self.transformer.transform(what, given, top)
        shape = tuple(top.shape)
        self.got.arrays[f"out{self.number}"] = np.array(top.cpu_data()).reshape(shape)
        if what == "blob":
            self.got.arrays[f"input{self.number}"] = np.array(given.cpu_data())
        mirror, h_off, w_off = (list(values) for values in zip(*places)) if places else ([], [], [])
        return {"shape": list(shape), "draws": draws, "mirror": mirror, "h_off": h_off, "w_off": w_off}

    def new(self, op: Op) -> dict[str, Any]:
        self.transformer = self.caffe.transformer(op["param"], op["phase"])
        return {}

    def set_random_seed(self, op: Op) -> dict[str, Any]:
        self.caffe.set_random_seed(op["seed"])
        return {}


_OPERATIONS = {
    "init_rand": _Run.init_rand,
    "rand": _Run.rand,
    "infer": _Run.infer,
    "transform": _Run.transform,
    "new": _Run.new,
    "set_random_seed": _Run.set_random_seed,
}


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """By the rules above."""
    recorded, values = case.recorded.values, got.values
    fatal, refusal = recorded.get("fatal"), values.get("fatal")
    sides = ({} if side is None else {**side, "text": side["text"].rstrip()} for side in (fatal, refusal))
    findings.value("fatal", *sides)
    for i, (expected, result) in enumerate(zip(recorded["results"], values["results"])):
        findings.value(f"results[{i}]", expected, result)
    findings.value("number of results", len(recorded["results"]), len(values["results"]))
    if fatal is None:
        findings.value("global_next", recorded["global_next"], values.get("global_next"))
    findings.value("log", recorded.get("log", []), values["log"])
    encoded, own = values["decoded"]
    pixels = [(name, data, case.recorded.arrays[name]) for name, data in encoded.items()]
    judge_decoded(case, pixels, own, findings)
    findings.arrays({name: array for name, array in case.recorded.arrays.items() if name not in encoded}, got.arrays)
