"""Playing a case's list of operations on an engine."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from conformance.cases import Case, CaseError, Recording
from conformance.engines import Engine
from conformance.engines.pycaffe import NetPart, Pycaffe, SolverPart
from conformance.files import fresh_folder, working_directory
from conformance.operations import files, nets, solvers
from conformance.outcome import Unsupported

TRAINING = ("step", "solve")  # the operations that record rows


def play(case: Case, engine: Engine, guided: bool = False, shaken: bool = False) -> Recording:
    """Carry out ``given.ops`` in a copy of the case's folder: what a case records, by the same names. Beside that

    ``values["exact"]``: by each ``as``, whether everything before it left parameters and files as they were for the
    original, to the bit; ``values["threads"]``: names of threads left over; and what ``steps`` looks at.

    ``guided``: every iteration of training starts from the recorded state and gets the recorded gradients and rate.
    ``shaken``: moreover gradients are clipped as a norm that is off by the bound of BLAS would have them clipped.
    """
    with fresh_folder(case) as folder, engine.pycaffe(case.upstream, case.mode) as caffe, working_directory(folder):
        before = caffe.threads()
        world = World(case, engine, caffe, folder, guided, shaken)
        try:
            world.run()
        finally:
            world.close()
        world.got.values["threads"] = sorted(thread.name for thread in caffe.threads() - before)
    return world.got


class World:
    """Nets and solvers by name, and what was recorded so far."""

    def __init__(self, case: Case, engine: Engine, caffe: Pycaffe, folder: Path, guided: bool, shaken: bool) -> None:
        self.case = case
        self.engine = engine
        self.caffe = caffe
        self.folder = folder
        self.guided = guided
        self.shaken = shaken
        self.exact = True  # no rounding of BLAS has reached parameters or history
        self.given_files = {path for path in folder.rglob("*") if path.is_file()}
        self.nets: dict[str, NetPart] = {}
        self.solvers: dict[str, SolverPart] = {}
        self.got = Recording({"exact": {}})
        if "log" in case.given:
            self.got.values["log"] = []

    def run(self) -> None:
        """All operations, until one is refused."""
        if self.case.seed is not None:
            self.caffe.set_random_seed(self.case.seed)
        for number, op in enumerate(self.case.given["ops"]):
            operation = OPERATIONS.get(op["op"])
            if operation is None:
                raise Unsupported(f"the suite has no operation {op['op']!r}")
            try:
                operation(self, op)
            except self.engine.Fatal as fatal:
                self._refused(number, fatal)
                return
            except (Unsupported, CaseError):
                raise
            except NotImplementedError as missing:
                raise Unsupported(str(missing)) from missing
            except Exception as error:  # what pycaffe raises is part of a recording
                raised = {"op": number, "type": type(error).__name__, "message": str(error)}
                self.got.values["exception"] = [raised]
                return
            finally:
                self._keep_log(number)

    def _refused(self, number: int, fatal: Any) -> None:
        recorded = self.case.recorded.values.get("fatal") or {"message": ""}
        missing = self.engine.not_yet(fatal.message)
        if missing and missing != self.engine.not_yet(recorded["message"]):
            raise Unsupported(missing)
        self.got.values["fatal"] = {"op": number, "file": fatal.file, "message": fatal.message}
        self.got.values["parser"] = [[number, "ERROR", text] for text in getattr(fatal, "complaints", ())]

    def _keep_log(self, number: int) -> None:
        wanted = [entry.partition("|") for entry in self.case.given.get("log", ())]
        for level, file, text in self.caffe.take_log():
            if any(file == name and re.search(pattern, text) for name, _, pattern in wanted):
                self.got.values["log"].append([number, f"{level} {file}", text])
            if level != "I":
                self.got.values.setdefault("errors", []).append([number, file, text])

    def close(self) -> None:
        for net in self.nets.values():
            net.close()
        for solver in self.solvers.values():
            solver.close()

    # --- what operations use

    def array(self, name: str) -> np.ndarray:
        """An array of given.npz."""
        if name not in self.case.given_arrays:
            raise CaseError(f"{self.case.folder / 'given.npz'}: no array {name!r}, which an operation names")
        return self.case.given_arrays[name]

    def net(self, op: dict[str, Any], key: str = "net") -> NetPart:
        """The net that an operation names: one of its own, or ``solver.net``, ``solver.test0`` …"""
        name = op.get(key, "net")
        solver, _, which = name.partition(".")
        if name in self.nets:
            return self.nets[name]
        if which == "net":
            return self.solvers[solver].net
        return self.solvers[solver].test_nets[int(which.removeprefix("test"))]

    def solver(self, op: dict[str, Any]) -> SolverPart:
        """The solver that an operation names."""
        return self.solvers[op.get("solver", "solver")]

    def note(self, section: str, name: str, value: Any) -> None:
        """Record a value under ``recorded.<section>[name]``."""
        self.got.values.setdefault(section, {})[name] = value
        self.got.values["exact"].setdefault(name, self.exact)

    def put(self, name: str, array: Any) -> None:
        """Record a copy of an array."""
        self.got.arrays[name] = np.array(array)
        self.got.values["exact"].setdefault(name.partition("/")[0], self.exact)

    def put_blobs(self, name: str, blobs: Sequence[Any], which: str = "data") -> None:
        """Record ``data`` or ``diff`` of blobs as ``name/0``, ``name/1`` …"""
        for k, blob in enumerate(blobs):
            self.put(f"{name}/{k}", nets.contents(blob, which))


Operation = Callable[[World, dict[str, Any]], None]
OPERATIONS: dict[str, Operation] = {**nets.OPERATIONS, **solvers.OPERATIONS, **files.OPERATIONS}
