"""What inputs are given to: definitions, models, solver states, means; as files, as users have them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from refcaffe import solvers
from refcaffe.checks import CheckError
from refcaffe.data.means import Means
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2, io
from refcaffe.telling import telling
from tests.fuzz.corpus import Given, load
from tests.fuzz.mutate import damage, damage_text
from tests.fuzz.mutate_hdf5 import damage_hdf5
from tests.fuzz.mutate_message import damage_message, parts

# target -> (kind of input, weight)
TARGETS: dict[str, tuple[tuple[str, int], ...]] = {
    "text": (("net", 3), ("solver", 1)),
    "binary": (("model", 3), ("state", 1), ("blob", 1)),
    "hdf5": (("hdf5", 3), ("hdf5_state", 2), ("hdf5_data", 1)),
}
_MESSAGES: dict[str, Any] = {
    "net": caffe_pb2.NetParameter,
    "solver": caffe_pb2.SolverParameter,
    "model": caffe_pb2.NetParameter,
    "state": caffe_pb2.SolverState,
    "blob": caffe_pb2.BlobProto,
}
_ENDINGS = {
    "model": ".caffemodel", "state": ".solverstate", "blob": ".binaryproto", "hdf5": ".h5", "hdf5_data": ".h5",
    "hdf5_state": ".solverstate.h5",
}  # fmt: skip

_SMALL_NET = """
    layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
    layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip" inner_product_param { num_output: 4 } }
"""


@dataclass
class Input:
    """A mutated file, in a copy of the folder of the case that it comes from."""

    kind: str
    data: bytes
    given: Given
    phase: int = caffe_pb2.TRAIN


class Maker:
    """Makes inputs: the same ones from the same random numbers."""

    @cached_property
    def _bank(self) -> list[Any]:
        """Some messages of every type that occurs."""
        found: list[Any] = []
        for given in Random(0).sample(load("net"), 60):
            try:
                found += parts(io.parse_text(given.data, caffe_pb2.NetParameter, given.path))
            except CheckError:
                continue
        return found

    def make(self, target: str, rng: Random) -> Input:
        kinds, weights = zip(*TARGETS[target], strict=True)
        kind = rng.choices(kinds, weights)[0]
        given = rng.choice(load(kind))
        data = self._damaged(kind, given, rng)
        return Input(kind, data, given, rng.choice((caffe_pb2.TRAIN, caffe_pb2.TEST)))

    def _damaged(self, kind: str, given: Given, rng: Random) -> bytes:
        others, way = [other.data for other in load(kind)], rng.random()
        if kind.startswith("hdf5"):
            data = damage_hdf5(rng, given.data) if way < 0.5 else given.data
            return data if way < 0.4 else damage(rng, data, others, in_place=rng.random() < 0.8)
        data = self._damaged_message(kind, given, rng) if way < 0.45 else given.data
        text = kind in ("net", "solver")
        if text and (way < 0.1 or 0.45 <= way < 0.9):
            return damage_text(rng, data, others)
        return data if 0.1 < way < 0.45 else damage(rng, data, others)

    def _damaged_message(self, kind: str, given: Given, rng: Random) -> bytes:
        """What the file says, otherwise; the file itself if it says nothing."""
        message, text = _MESSAGES[kind](), kind in ("net", "solver")
        try:
            if text:
                message = io.parse_text(given.data, type(message), given.path)
            else:
                message.MergeFromString(given.data)
        except (CheckError, DecodeError):
            return given.data
        damage_message(rng, message, self._bank)
        return io.to_text(message).encode("latin-1") if text else bytes(message.SerializePartialToString())


class Player:
    """Has refcaffe read inputs. ``scratch`` gets copies of the cases' folders, to work in."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._homes: dict[Path, Path] = {}
        self._nets: dict[Path, Net] = {}
        self._solvers: dict[Path, Any] = {}

    def prepare(self, given: Input) -> Callable[[], None]:
        """Write the input into its folder; what is left is to be watched."""
        home = self._home(given.given.home)
        os.chdir(home)
        name = f"fuzzed{_ENDINGS.get(given.kind, '.prototxt')}"
        Path(name).write_bytes(given.data)
        if given.kind in ("model", "hdf5"):
            return partial(self._net(home).copy_from, name)
        if given.kind in ("state", "hdf5_state"):
            return partial(_restore, self._solver(home), name)
        if given.kind == "blob":
            return partial(_use_means, caffe_pb2.TransformationParameter(mean_file=name))
        if given.kind == "hdf5_data":
            _name_in_lists(home, name)
            return lambda: Net("net.prototxt", given.phase).close()
        if given.kind == "solver":
            return partial(_make_solver, name)
        return lambda: Net(name, given.phase).close()

    def _home(self, folder: Path) -> Path:
        if folder not in self._homes:
            home = self._homes[folder] = self._scratch / str(len(self._homes))
            shutil.copytree(folder, home)
        return self._homes[folder]

    def _net(self, home: Path) -> Net:
        """A net that the models of a folder are for."""
        if home not in self._nets:
            self._nets[home] = _first_net(sorted(home.glob("*.prototxt")))
        return self._nets[home]

    def _solver(self, home: Path) -> Any:
        if home not in self._solvers:
            solver = self._solvers[home] = solvers.create(str(home / "solver.prototxt"))
            solver.original_shapes = [blob.shape for blob in solver.history]
        solver = self._solvers[home]
        for blob, shape in zip(solver.history, solver.original_shapes, strict=True):
            blob.reshape(shape)
        return solver


def _first_net(paths: Sequence[Path]) -> Net:
    for path in paths:
        try:
            return Net(str(path), caffe_pb2.TEST)
        except CheckError:
            continue
    return Net(io.parse_text(_SMALL_NET, caffe_pb2.NetParameter, "small net"))


def _name_in_lists(home: Path, name: str) -> None:
    """Have the lists of data files in a folder name this one."""
    for path in home.glob("*.txt"):
        path.write_text(f"{name}\n")


def _restore(solver: Any, name: str) -> None:
    """What was restored is used: the update looks at it."""
    solver.restore(name)
    with np.errstate(all="ignore"), telling(lambda: f"an update after {name} was restored"):
        solver.apply_update()


def _use_means(param: Any) -> None:
    means = Means(param, np.dtype(np.float32))
    with suppress(CheckError):  # which record it is for is told by who knows it
        means.check_file((3, 4, 5), "input")


def _make_solver(name: str) -> None:
    with solvers.create(name) as solver, np.errstate(all="ignore"), suppress(CheckError):
        solver.learning_rate()  # a policy is looked at late; its messages name the fields
