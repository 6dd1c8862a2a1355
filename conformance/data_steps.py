"""The steps of a case of kind ``data``."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.databases import Writer
from conformance.engines import Engine
from conformance.engines.pipeline import Pipeline
from conformance.operations.files import read_hdf5
from conformance.outcome import Unsupported

_WORDS = 4  # of the global stream that are recorded
_PATIENCE = 30.0  # seconds for a thread to fail, if it did in the recording

Step = dict[str, Any]


class DataRun:
    """Carries the steps out; ``got`` is what the case records."""

    def __init__(self, case: Case, engine: Engine, caffe: Pipeline, folder: Path) -> None:
        self.case, self.engine, self.caffe, self.folder = case, engine, caffe, folder
        # Copies, since steps write into them; their order in memory stays.
        self.arrays = {name: array.copy(order="K") for name, array in case.given_arrays.items()}
        self.net: Any = None  # or the layer, if the case is about one
        self.tops: dict[str, Any] = {}
        self.writer: Writer | None = None
        self.got = Recording({"shapes": {}, "forwards": 0, "rng_next": {}, "exceptions": [], "buffers": {}})
        self._parts: dict[str, list[np.ndarray]] = {}
        self._seen: dict[str, list[int]] = {}

    def run(self) -> None:
        """All steps, until one is refused; then what is left to be recorded."""
        given, values = self.case.given, self.got.values
        self.caffe.set_solver(given.get("solver_count", 1), given.get("solver_rank", 0))
        self.caffe.set_random_seed(self.case.seed or 0)
        before = self.caffe.threads()
        try:
            self._steps()
            self._await_failure()
            values["rng_next"]["end"] = self.caffe.words_ahead(_WORDS)
        except self.engine.Fatal as fatal:
            values["fatal"] = fatal.message
            complaints = [["protobuf ERROR", text] for text in getattr(fatal, "complaints", ())]
        else:
            complaints = []
        finally:
            if self.net is not None:
                self.net.close()
            if self.writer is not None:
                self.writer.close()
        # What reading an old definition says is another kind's affair, and was not recorded.
        lines = [line for line in self.caffe.take_log() if line[0] != "I" and line[1] != "upgrade_proto.cpp"]
        values["log"] = [[level, text] for level, _, text in lines] + complaints
        values["threads"] = sorted(thread.name for thread in self.caffe.threads() - before)
        self.got.arrays |= {name: np.concatenate(parts) for name, parts in self._parts.items()}
        self._read_outputs()

    def _steps(self) -> None:
        if "layer" in self.case.given:
            self._make_layer()
        for number, step in enumerate(self.case.given["steps"]):
            operation = _STEPS.get(step["op"])
            if operation is None:
                raise Unsupported(f"the suite has no step {step['op']!r}")
            try:
                operation(self, step)
            except (self.engine.Fatal, Unsupported, CaseError):
                raise
            except Exception as error:  # what pycaffe raises is part of a recording
                raised = {"step": number, "type": type(error).__name__, "text": str(error)}
                self.got.values["exceptions"].append(raised)

    def _await_failure(self) -> None:
        """What a thread failed with, if one fails: the original's process ended of that at once."""
        end = time.monotonic() + (_PATIENCE if self.case.document.get("asynchronous") else 0)
        while True:
            error = None if self.net is None else self.caffe.failure(self.net)
            if error is not None:
                raise error
            if time.monotonic() >= end:
                return
            time.sleep(0.01)

    def _read_outputs(self) -> None:
        for name in self.case.given.get("outputs", ()):
            path = self.folder / name
            if path.is_file():
                _, found = read_hdf5(path.read_bytes())
                self.got.arrays |= {f"h5/{name}/{key}": array for key, array in found.items()}

    # --- nets and layers

    def _note_words(self, when: str) -> None:
        noted, words = self.got.values["rng_next"], self.caffe.words_ahead(_WORDS)
        if when == "built" and "built" in noted:
            noted.setdefault("built_again", []).append(words)
        else:
            noted.setdefault(when, words)

    def _make_layer(self) -> None:
        given = self.case.given
        self._note_words("start")
        self.net = self.caffe.layer((self.folder / given["layer"]).read_text(encoding="utf-8"))
        self.tops = {"data": self.caffe.blob(None), "label": self.caffe.blob(None)}
        self.net.set_up([], list(self.tops.values()))
        self._built()

    def build(self, step: Step) -> None:
        given = self.case.given
        self._note_words("start")
        if "c_srand" in given:
            self.caffe.c_srand(given["c_srand"])
        self.net = self.caffe.net(given["net"], given["phase"], 0, (), None)
        self.tops = {name: self.net.blobs[name] for name in given["blobs"]}
        self._built()
        for layer in given.get("params", ()):
            for i, blob in enumerate(self.net.params[layer]):
                self.got.arrays[f"param/{layer}/{i}"] = blob.data.copy()

    def _built(self) -> None:
        shapes = {name: list(blob.shape) for name, blob in self.tops.items()}
        self.got.values.setdefault("built_shapes", shapes)
        self._note_words("built")

    def forward(self, step: Step) -> None:
        for _ in range(step.get("times", 1)):
            if "layer" in self.case.given:
                self.net.forward([], list(self.tops.values()))
            else:
                self.net.run_forward(None, None)
            self.got.values["forwards"] += 1
            for name, blob in self.tops.items():
                self._keep(name, blob)

    def _keep(self, name: str, blob: Any) -> None:
        values = self.got.values
        if self.case.given.get("buffers"):
            seen, place = self._seen.setdefault(name, []), self.caffe.place_of(blob)
            if place not in seen:
                seen.append(place)
            values["buffers"].setdefault(name, []).append(seen.index(place))
        self._parts.setdefault(name, []).append(np.array(blob.data).reshape(-1))
        values["shapes"].setdefault(name, []).append(list(blob.shape))

    def destroy(self, step: Step) -> None:
        self.net.close()
        self.net = None

    # --- what the caller writes

    def _array(self, name: str) -> np.ndarray:
        if name not in self.arrays:
            raise CaseError(f"{self.case.folder / 'given.npz'}: no array {name!r}, which a step names")
        return self.arrays[name]

    def set(self, step: Step) -> None:
        self.net.blobs[step["blob"]].data[...] = step["value"] if "value" in step else self._array(step["array"])

    def reshape(self, step: Step) -> None:
        self.net.blobs[step["blob"]].reshape(*step["shape"])
        if step.get("net"):
            self.net.method("reshape")()

    def set_input_arrays(self, step: Step) -> None:
        labels = self._array(step["labels"])
        labels = labels.reshape(-1, 1, 1, 1) if labels.ndim == 1 else labels
        self.net.method("set_input_arrays")(self._array(step["data"]), labels)

    def write_array(self, step: Step) -> None:
        self._array(step["array"])[...] = step["value"]

    def writer_begin(self, step: Step) -> None:
        self.writer = Writer(self.case, step["db"], step["arrays"])

    def writer_commit(self, step: Step) -> None:
        if self.writer is not None:
            self.writer.commit()

    def sleep(self, step: Step) -> None:
        if not self.case.document.get("asynchronous"):  # else it is for the failure, which is waited for anyway
            time.sleep(step["seconds"])

    # --- a MemoryData layer's own

    def add_datums(self, step: Step) -> None:
        self.net.add_datum_vector([self.caffe.datum(self._array(name).tobytes()) for name in step["datums"]])

    def add_mats(self, step: Step) -> None:
        self.net.add_mat_vector([self._array(name) for name in step["mats"]], step["labels"])

    def reset(self, step: Step) -> None:
        self.net.reset(self._array(step["data"]), self._array(step["labels"]))

    def set_batch_size(self, step: Step) -> None:
        self.net.set_batch_size(step["n"])


_STEPS: dict[str, Callable[[DataRun, Step], None]] = {
    name: getattr(DataRun, name)
    for name in (
        "build", "forward", "set", "reshape", "set_input_arrays", "write_array", "writer_begin", "writer_commit",
        "sleep", "destroy", "add_datums", "add_mats", "reset", "set_batch_size",
    )
}  # fmt: skip
