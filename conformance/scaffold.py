"""``conformance new layer``: a case of kind layer from a definition and given or random inputs (FORMAT-layer.md)."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from conformance.bounds import bounds_of
from conformance.bounds.formula import find
from conformance.cases import Case, CaseError, read_case
from conformance.engines import make_engine
from conformance.engines.base import Engine
from conformance.files import working_directory
from conformance.kinds import layer as kind_layer
from conformance.outcome import Unsupported
from conformance.record import record_pycaffe

EPILOG = """\
Bottoms that --given has no array for get random numbers: from a normal distribution, or whole ones if the shape is
followed by a range, as labels need: --bottom label:4:0..9. The recording is refcaffe's own, as the case's `upstream`
says; to have an original Caffe's, give the case to `conformance record`.
"""
_PHASES = ("TRAIN", "TEST")
_STEPS = ("forward", "clear_param_diffs", "backward")
_GIVEN = re.compile(r"param\.\d+$|s\d+\.(?:data|diff)\.")


@dataclass(frozen=True)
class Bottom:
    """A bottom of the layer: its shape, and the range of whole numbers that it holds (None: any numbers)."""

    name: str
    shape: tuple[int, ...]
    range: tuple[int, int] | None = None
    source: str = "Input"

    def random(self, numbers: np.random.Generator) -> np.ndarray:
        if self.range:
            low, high = self.range
            return numbers.integers(low, high + 1, self.shape).astype(np.float32)
        return numbers.standard_normal(self.shape).astype(np.float32)


def bottom(text: str) -> Bottom:
    """``name:2x3x4`` or ``name:2,3,4``, then maybe ``:0..9``; ``name:`` is a blob without axes. ValueError if not."""
    found = re.fullmatch(r"([^:]+):((?:\d+(?:[x,]\d+)*)?)(?::(-?\d+)\.\.(-?\d+))?", text)
    if not found:
        raise ValueError(f"{text!r} is not name:shape, as in data:2x3x4, or name:shape:low..high, as in label:4:0..9")
    name, dims, low, high = found.groups()
    shape = tuple(map(int, re.split("[x,]", dims))) if dims else ()
    return Bottom(name, shape, (int(low), int(high)) if low else None)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``new layer``."""
    parser.add_argument("name", metavar="NAME", help="of the case; without group/ the group is the layer's type")
    parser.add_argument("--prototxt", type=Path, required=True, metavar="FILE", help="a definition: layer { … }")
    parser.add_argument("--layer", metavar="NAME", help="which layer of the file (default: the only one)")
    parser.add_argument(
        "--bottom", type=bottom, action="append", default=[], metavar="NAME:SHAPE[:LOW..HIGH]",
        help="shape of a bottom, as data:2x3x4x4, and the range if it holds whole numbers (repeatable)",
    )  # fmt: skip
    parser.add_argument(
        "--given", type=Path, metavar="FILE", help=".npz with arrays by name: a bottom, param.0, s1.diff.TOP …"
    )
    parser.add_argument(
        "--parameter", action="append", default=[], metavar="NAME", help="bottom that is the top of a Parameter layer"
    )
    parser.add_argument("--no-force-backward", action="store_true", help="gradients only for --parameter bottoms")
    parser.add_argument("--phase", choices=_PHASES, default="TRAIN", help="of the net (default: %(default)s)")
    parser.add_argument(
        "--steps", default="forward,backward", metavar="STEP,…", help=f"of {', '.join(_STEPS)} (default: %(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1701, metavar="N", help="of everything random (default: %(default)s)"
    )
    parser.add_argument("--mode", choices=("CPU", "GPU"), default="CPU", help="of Caffe (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("cases"), metavar="DIR", help="cases (default: %(default)s)")
    parser.add_argument("--unrecorded", action="store_true", help="leave the recording to `conformance record`")


def run(arguments: argparse.Namespace) -> int:
    """Make the case; returns the exit status. Raises CaseError with what is wrong with the input."""
    steps = arguments.steps.split(",")
    if wrong := [step for step in steps if step not in _STEPS]:
        raise CaseError(f"{wrong[0]!r} is no step: {', '.join(_STEPS)}")
    layer = _layer(arguments)
    name = arguments.name if "/" in arguments.name else f"{_snake(layer.type)}/{arguments.name}"
    target = arguments.out / "layer" / name
    if target.exists():
        raise CaseError(f"{target}: is there already")
    arrays = record_pycaffe.read_npz(str(arguments.given))[1] if arguments.given else {}
    if arguments.given and not arrays:
        raise CaseError(f"{arguments.given}: no arrays in it")
    with tempfile.TemporaryDirectory(prefix="conformance-") as scratch:
        folder = Path(scratch)
        _write(folder, layer, name, _bottoms(layer, arguments, arrays), arrays, steps, arguments)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(folder, target)
    case = read_case(target)
    fatal = case.document["recorded"].get("fatal")
    recorded = f"refused: {fatal['message']}" if fatal else f"recorded from {case.upstream}"
    print(f"{target}: {'not recorded yet' if arguments.unrecorded else recorded}")
    return 0


def _snake(layer_type: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", layer_type).lower()


def _layer(arguments: argparse.Namespace) -> Any:
    """The LayerParameter, by the name that layers under test have."""
    from refcaffe.proto import caffe_pb2, io

    try:
        text = arguments.prototxt.read_text(encoding="utf-8")
        layers = io.parse_text(text, caffe_pb2.NetParameter, str(arguments.prototxt)).layer
    except (OSError, io.ParseError) as error:
        raise CaseError(f"{arguments.prototxt}: cannot be read: {error}") from error
    chosen = [layer for layer in layers if arguments.layer in (None, layer.name)]
    if len(chosen) != 1:
        names = ", ".join(layer.name for layer in layers) or "none"
        raise CaseError(f"{arguments.prototxt}: one layer is wanted (choose with --layer); there: {names}")
    layer = caffe_pb2.LayerParameter()
    layer.CopyFrom(chosen[0])
    layer.name = "layer"
    del layer.include[:], layer.exclude[:]
    if len(set(layer.bottom)) != len(layer.bottom):
        raise CaseError("a bottom that is given twice: use two names")
    return layer


def _bottoms(layer: Any, arguments: argparse.Namespace, arrays: dict[str, np.ndarray]) -> list[Bottom]:
    """In the layer's order. The array that is given, or the option, tells the shape."""
    given = {entry.name: entry for entry in arguments.bottom}
    if unknown := [name for name in [*given, *arguments.parameter] if name not in layer.bottom]:
        raise CaseError(f"{unknown[0]!r} is no bottom of the layer: {', '.join(layer.bottom) or 'it has none'}")
    found = []
    for name in layer.bottom:
        array = arrays.get(name, arrays.get(f"s0.data.{name}"))
        if name not in given and array is None:
            raise CaseError(f"bottom {name!r}: --bottom {name}:SHAPE, or an array of --given, must tell its shape")
        entry = given[name] if name in given else Bottom(name, array.shape)  # type: ignore[union-attr]
        found.append(replace(entry, source="Parameter" if name in arguments.parameter else "Input"))
    return found


def _write(
    folder: Path,
    layer: Any,
    name: str,
    bottoms: Sequence[Bottom],
    arrays: dict[str, np.ndarray],
    steps: list[str],
    arguments: argparse.Namespace,
) -> None:
    """The case in a folder: definitions, inputs, then the recording."""
    from refcaffe.proto.io import to_text

    body = to_text(layer)
    text = "layer {\n" + "".join(f"  {line}\n" for line in body.splitlines()) + "}\n"
    force = not arguments.no_force_backward
    (folder / "layer.prototxt").write_text(text, encoding="utf-8")
    head = f'name: "case"\nforce_backward: {str(force).lower()}\n' + "".join(map(_source_text, bottoms))
    (folder / "net.prototxt").write_text(head + text, encoding="utf-8")
    engine = make_engine("refcaffe", "cpu")
    upstream = "" if arguments.unrecorded else f"refcaffe-{engine.describe()['refcaffe']}"
    document: dict[str, Any] = {
        "format": 1,
        "kind": "layer",
        "name": name,
        "upstream": upstream or "not-recorded",
        "mode": arguments.mode,
        "seed": arguments.seed,
        "given": {
            "phase": arguments.phase,
            "force_backward": force,
            "bottoms": [{"name": b.name, "shape": list(b.shape), "source": b.source} for b in bottoms],
            "tops": list(layer.top),
            "params": sum(key.startswith("param.") for key in arrays),
            "steps": steps,
        },
        "recorded": {},
    }
    inputs = _inputs(folder, bottoms, arrays, steps, arguments, engine)
    if inputs:
        record_pycaffe.write_npz(str(folder / "given.npz"), list(inputs.items()))
    _save(folder, document)
    if not arguments.unrecorded:
        _record(folder, document, layer.type, engine)


def _save(folder: Path, document: dict[str, Any]) -> None:
    record_pycaffe.write_json(str(folder / "case.json"), document)


def _source_text(entry: Bottom) -> str:
    """The layer that gives a bottom."""
    shape = "".join(f" dim: {dim}" for dim in entry.shape)
    param = {"Input": "input_param", "Parameter": "parameter_param"}[entry.source]
    name = json.dumps(entry.name)
    return f'layer {{ name: {name} type: "{entry.source}" top: {name} {param} {{ shape {{{shape} }} }} }}\n'


def _inputs(
    folder: Path,
    bottoms: Sequence[Bottom],
    arrays: dict[str, np.ndarray],
    steps: list[str],
    arguments: argparse.Namespace,
    engine: Engine,
) -> dict[str, np.ndarray]:
    """What is given, by the names of given.npz; random where nothing is."""
    numbers = np.random.default_rng(arguments.seed)
    tops = _tops(folder, arguments, engine)
    found: dict[str, np.ndarray] = {}
    for s, step in enumerate(steps):
        if step == "forward" and s == steps.index("forward"):
            for entry in bottoms:
                array = arrays.get(entry.name)
                found[f"s{s}.data.{entry.name}"] = entry.random(numbers) if array is None else array
        elif step == "backward":
            found |= {f"s{s}.diff.{top}": Bottom(top, shape).random(numbers) for top, shape in tops.items()}
    found |= {key: array for key, array in arrays.items() if _GIVEN.match(key)}
    return {key: np.asarray(array, np.float32) for key, array in found.items()}


def _tops(folder: Path, arguments: argparse.Namespace, engine: Engine) -> dict[str, tuple[int, ...]]:
    """Shapes of the tops that get a gradient: those without a loss weight; none if the layer is refused."""
    with engine.pycaffe("local", arguments.mode) as caffe, working_directory(folder):
        try:
            caffe.set_random_seed(arguments.seed)
            net = caffe.net("net.prototxt", arguments.phase, 0, (), None)
        except engine.Fatal:
            return {}
        try:
            structure = net.structure()
            numbers = structure["top_ids"][-1]
            names = [(structure["blob_names"][i], structure["blob_loss_weights"][i]) for i in numbers]
            return {name: tuple(net.blobs[name].shape) for name, weight in names if not weight and name in net.blobs}
        finally:
            net.close()


def _record(folder: Path, document: dict[str, Any], layer_type: str, engine: Engine) -> None:
    """Fill in the recording from an engine, and the exactness that its formulas have."""
    case = read_case(folder)
    got = engine.recording(case, kind_layer.play)
    recorded = document["recorded"] = {key: value for key, value in got.values.items() if key != "params" or value}
    if "untouched" in recorded:  # a Parameter bottom that got no gradient has zeros, which are recorded
        inputs = [entry["name"] for entry in document["given"]["bottoms"] if entry["source"] == "Input"]
        recorded["untouched"] = [name for name in recorded["untouched"] if name in inputs]
    unread = {f"diff.{name}" for name in recorded.get("untouched", ())}
    arrays = [(key, array) for key, array in got.arrays.items() if key.partition(".")[2] not in unread]
    if arrays:
        record_pycaffe.write_npz(str(folder / "recorded.npz"), arrays)
    _save(folder, document)
    if "fatal" not in recorded:
        document["exactness"] = _exactness(read_case(folder), layer_type, [key for key, _ in arrays])
        _save(folder, document)


def _exactness(case: Case, layer_type: str, names: Sequence[str]) -> dict[str, str]:
    """By group of arrays: bitwise if the layer type's formula rounds nothing there that may come out otherwise."""
    groups = dict.fromkeys(name.split(".")[1] for name in names if not name.startswith("setup."))
    rounded = dict.fromkeys(groups, "blas")
    formula = find(layer_type)
    if formula is None:
        return dict.fromkeys(groups, "bitwise")
    document = {**case.document, "exactness": rounded}
    try:
        bounds = bounds_of(Case(case.folder, case.kind, case.name, document))
    except Unsupported:
        return rounded
    word = "libm" if formula.__module__.endswith(".elementwise") else "blas"
    off = {name.split(".")[1] for name, value in bounds.items() if np.any(value.error > 0)}
    return {group: word if group in off else "bitwise" for group in groups}
