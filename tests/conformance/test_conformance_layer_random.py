"""refcaffe's layers against the formulas of the bounds, on random definitions that nobody recorded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.bounds import bounds_of
from conformance.bounds.running import Bounded
from conformance.cases import Case, Recording, read_case
from conformance.engines import Engine, make_engine
from conformance.kinds import layer as kind

SEEDS = 6

Random = np.random.RandomState


@dataclass
class Definition:
    """A layer in text without name, bottoms and tops; its bottoms' data; which groups have formulas."""

    text: str
    bottoms: Sequence[np.ndarray]
    groups: str = "data diff"
    tops: int = 1
    params: Callable[[Sequence[Sequence[int]]], list[np.ndarray]] | None = None
    parameter: int | None = None  # the one bottom that gets a gradient; None: force_backward for all
    phase: str = "TRAIN"
    steps: Sequence[str] = field(default=("forward", "clear_param_diffs", "backward", "forward", "backward"))


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("refcaffe", "cpu")


def write_case(folder: Path, given: Definition, random: Random) -> Case:
    """A case without recorded arrays; top diffs are not given."""
    names = [f"b{i}" for i in range(len(given.bottoms))]
    layer = (
        'layer { name: "layer" '
        + " ".join(f'bottom: "{name}"' for name in names)
        + " "
        + " ".join(f'top: "t{i}"' for i in range(given.tops))
        + f" {given.text} }}"
    )
    sources = ["Parameter" if i == given.parameter else "Input" for i in range(len(names))]
    inputs = [
        f'layer {{ name: "{name}" type: "{source}" top: "{name}" {source.lower()}_param {{ shape {{ '
        + " ".join(f"dim: {n}" for n in array.shape)
        + " } } }"
        for name, source, array in zip(names, sources, given.bottoms)
    ]
    force = given.parameter is None
    net = [f'name: "case" force_backward: {str(force).lower()}', *inputs, layer]
    (folder / "layer.prototxt").write_text(layer)
    (folder / "net.prototxt").write_text("\n".join(net))
    arrays = {f"s0.data.{name}": array for name, array in zip(names, given.bottoms)}
    document = {
        "format": 1,
        "kind": "layer",
        "name": "random/one",
        "upstream": "bvlc-1.0-cpu",
        "mode": "CPU",
        "seed": int(random.randint(1, 1000)),
        "given": {
            "phase": given.phase,
            "force_backward": force,
            "bottoms": [
                {"name": name, "shape": array.shape, "source": source}
                for name, source, array in zip(names, sources, given.bottoms)
            ],
            "tops": [f"t{i}" for i in range(given.tops)],
            "params": 0,
            "steps": given.steps,
        },
        "recorded": {},
        "exactness": dict.fromkeys(given.groups.split(), "blas"),
    }
    np.savez(folder / "given.npz", **arrays)
    (folder / "case.json").write_text(json.dumps(document))
    return read_case(folder)


def rewrite(case: Case, arrays: dict[str, np.ndarray], recorded: Recording | None = None, **given: Any) -> Case:
    document = {**case.document, "given": {**case.given, **given}}
    if recorded is not None:
        document["recorded"] = recorded.values
        np.savez(case.folder / "recorded.npz", **recorded.arrays)
    np.savez(case.folder / "given.npz", **{**case.given_arrays, **arrays})
    (case.folder / "case.json").write_text(json.dumps(document))
    return read_case(case.folder)


def normal(random: Random, *shape: int) -> np.ndarray:
    return np.asarray(random.randn(*shape), np.float32)


def play(folder: Path, given: Definition, random: Random, engine: Engine) -> Case:
    """A case whose recording is what the engine gives, with random parameters and top diffs."""
    case = write_case(folder, given, random)
    shapes = engine.recording(rewrite(case, {}, steps=["forward"]), kind.play).values
    if "fatal" in shapes:
        pytest.skip(f"refused: {shapes['fatal']['message']}")
    params = given.params(shapes["params"]) if given.params else [normal(random, *s) for s in shapes["params"]]
    arrays = {f"param.{i}": array for i, array in enumerate(params)}
    for s, step in enumerate(given.steps):
        if step == "backward" and not any(shapes["loss_weights"]):
            arrays |= {f"s{s}.diff.{top}": normal(random, *shape) for top, shape in shapes["tops"].items()}
    case = rewrite(case, arrays, params=len(params), steps=given.steps)
    return rewrite(case, {}, engine.recording(case, kind.play))


def choice(random: Random, *options: Any) -> Any:
    return options[random.randint(len(options))]


def shape_of(random: Random, axes: int, least: int = 1) -> list[int]:
    return [int(n) for n in random.randint(least, 6, axes)]


def elementwise(text: Callable[[Random], str], positive: bool = False) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        x = normal(random, *shape_of(random, random.randint(1, 5))) * choice(random, 1, 4)
        return Definition(text(random), [np.abs(x) + np.float32(0.1) if positive else x])

    return define


def number(random: Random, least: float = 0.2, most: float = 3.0) -> str:
    return f"{random.uniform(least, most):.3g}"


def sliding(kind: str) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        axes, group = random.randint(0, 4), random.randint(1, 4)
        batch = shape_of(random, random.randint(0, 3))
        space = shape_of(random, axes, 3)
        fields = [f"num_output: {group * random.randint(1, 4)} group: {group} axis: {len(batch)}"]
        fields.append("bias_term: false" if random.rand() < 0.3 else "bias_filler { type: 'gaussian' }")
        for name, least, most in (("kernel_size", 1, 4), ("stride", 1, 4), ("pad", 0, 3), ("dilation", 1, 3)):
            values = random.randint(least, most, choice(random, 1, axes) if axes else 0)
            fields += [f"{name}: {value}" for value in values]
        bottoms = [normal(random, *batch, group * 2, *space) for _ in range(random.randint(1, 3))]
        text = f'type: "{kind}" convolution_param {{ {" ".join(fields)} }}'
        return Definition(text, bottoms, "data diff param_diff", tops=len(bottoms))

    return define


def inner_product(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(1, 5)))
    flags = f"transpose: {choice(random, 'true', 'false')} bias_term: {choice(random, 'true', 'false')}"
    text = f"num_output: {random.randint(1, 5)} axis: {random.randint(0, x.ndim)} {flags}"
    return Definition(f'type: "InnerProduct" inner_product_param {{ {text} }}', [x], "data diff param_diff")


def embed(random: Random) -> Definition:
    index = random.randint(0, 6, shape_of(random, random.randint(1, 3))).astype(np.float32)
    text = f"input_dim: 6 num_output: {random.randint(1, 5)} bias_term: {choice(random, 'true', 'false')}"
    steps = ("forward", "clear_param_diffs", "backward", "backward")
    text = f'type: "Embed" loss_weight: 0.5 embed_param {{ {text} }}'
    return Definition(text, [index], "param_diff loss", parameter=-1, steps=steps)


def scaled(kind: str) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        x = normal(random, *shape_of(random, random.randint(2, 5)))
        axis = random.randint(0, x.ndim)
        axes = random.randint(0, x.ndim - axis + 1)
        fields = f"axis: {axis} num_axes: {axes}" + (
            " bias_term: true" if kind == "Scale" and random.rand() < 0.5 else ""
        )
        text = f'type: "{kind}" {kind.lower()}_param {{ {fields} }}'
        if random.rand() < 0.5:
            return Definition(text, [x], "param_diff")
        return Definition(text, [x, normal(random, *x.shape[axis : axis + axes])], "diff param_diff")

    return define


def eltwise(random: Random) -> Definition:
    shape = shape_of(random, random.randint(1, 5))
    n = random.randint(2, 5)
    fields = " ".join(f"coeff: {number(random, -2, 2)}" for _ in range(choice(random, 0, n)))
    return Definition(
        f'type: "Eltwise" eltwise_param {{ {fields} }}', [normal(random, *shape) for _ in range(n)], "data"
    )


def reduction(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(1, 5)))
    operation = choice(random, "SUM", "ASUM", "SUMSQ", "MEAN")
    fields = f"operation: {operation} axis: {random.randint(-x.ndim, x.ndim)} coeff: {number(random, -2, 2)}"
    return Definition(f'type: "Reduction" reduction_param {{ {fields} }}', [x], "data")


def batch_norm(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(2, 6), 2)) * 3 + 1
    fields = f"eps: {number(random, 1e-5, 0.1)} moving_average_fraction: {number(random, 0.1, 1)}"
    fields += choice(random, "", " use_global_stats: true", " use_global_stats: false")
    return Definition(
        f'type: "BatchNorm" batch_norm_param {{ {fields} }}',
        [x],
        "data diff param",
        params=lambda shapes: [np.abs(normal(random, *shape)) + 1 for shape in shapes],
        phase=choice(random, "TRAIN", "TEST"),
    )


def mvn(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(2, 5), 2)) + 1
    flags = " ".join(f"{name}: {choice(random, 'true', 'false')}" for name in ("normalize_variance", "across_channels"))
    return Definition(f'type: "MVN" mvn_param {{ {flags} eps: {number(random, 1e-9, 0.1)} }}', [x])


def lrn(random: Random) -> Definition:
    x = normal(random, *shape_of(random, 4))
    region = choice(random, "ACROSS_CHANNELS", "WITHIN_CHANNEL")
    fields = f"local_size: {choice(random, 1, 3, 5)} alpha: {number(random)} beta: {number(random)} k: {number(random)}"
    return Definition(f'type: "LRN" lrn_param {{ {fields} norm_region: {region} }}', [x])


def softmax(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(1, 5))) * 3
    return Definition(f'type: "Softmax" softmax_param {{ axis: {random.randint(-x.ndim, x.ndim)} }}', [x])


def normalization(random: Random, label: int) -> str:
    mode = choice(
        random, "", "normalization: FULL", "normalization: VALID", "normalization: BATCH_SIZE", "normalization: NONE"
    )
    ignore = f"ignore_label: {label}" if random.rand() < 0.5 else ""
    return f"loss_param {{ {mode} {ignore} }} loss_weight: {number(random)}"


def softmax_loss(kind: str) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        x = normal(random, *shape_of(random, random.randint(2, 5), 2)) * 3
        axis = random.randint(1, x.ndim)
        labels = random.randint(0, x.shape[axis], x.shape[:axis] + x.shape[axis + 1 :]).astype(np.float32)
        name = "softmax_param" if kind == "SoftmaxWithLoss" else "infogain_loss_param"
        text = f'type: "{kind}" {name} {{ axis: {axis} }} {normalization(random, 1)}'
        matrix = [normal(random, x.shape[axis], x.shape[axis])] if kind == "InfogainLoss" else []
        flags = " propagate_down: true propagate_down: false" + " propagate_down: false" * len(matrix)
        return Definition(text + flags, [x, labels, *matrix], "data diff loss", parameter=0)

    return define


def sigmoid_loss(random: Random) -> Definition:
    x = normal(random, *shape_of(random, random.randint(1, 5))) * 3
    t = np.where(random.rand(*x.shape) < 0.3, -1, random.rand(*x.shape)).astype(np.float32)
    return Definition(f'type: "SigmoidCrossEntropyLoss" {normalization(random, -1)}', [x, t], "data diff loss")


def contrastive(random: Random) -> Definition:
    n, channels = shape_of(random, 2)
    similar = random.randint(0, 2, n).astype(np.float32)
    fields = f"margin: {number(random)} legacy_version: {choice(random, 'true', 'false')}"
    bottoms = [normal(random, n, channels), normal(random, n, channels), similar]
    text = f'type: "ContrastiveLoss" contrastive_loss_param {{ {fields} }} loss_weight: {number(random)}'
    return Definition(text, bottoms, "data diff loss")


def plain_loss(kind: str, label: bool, positive: bool = False) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        shape = shape_of(random, random.randint(2, 5))
        x = np.abs(normal(random, *shape)) if positive else normal(random, *shape)
        n = int(np.prod(shape[1:]))
        second = random.randint(0, n, shape[0]).astype(np.float32) if label else normal(random, *shape)
        norm = choice(random, "", "hinge_loss_param { norm: L2 }") if kind == "HingeLoss" else ""
        text = f'type: "{kind}" {norm} loss_weight: {number(random)}'
        return Definition(text, [x, second], "data loss")

    return define


def lstm_unit(random: Random) -> Definition:
    n, d = shape_of(random, 2)
    cont = choice(random, random.randint(0, 2, (1, n)), random.rand(1, n)).astype(np.float32)
    return Definition('type: "LSTMUnit"', [normal(random, 1, n, d), normal(random, 1, n, 4 * d), cont], tops=2)


def recurrent(kind: str) -> Callable[[Random], Definition]:
    def define(random: Random) -> Definition:
        steps, n, d = shape_of(random, 3)
        exposed, static = random.rand(2) < 0.5
        states = {"LSTM": 2, "RNN": 1}[kind] if exposed else 0
        cont = random.randint(0, 2, (steps, n)).astype(np.float32)
        bottoms = [normal(random, steps, n, *shape_of(random, random.randint(1, 3))), cont]
        bottoms += [normal(random, n, random.randint(1, 4))] if static else []
        bottoms += [normal(random, 1, n, d) for _ in range(states)]
        filler = "weight_filler { type: 'gaussian' }"
        text = f"num_output: {d} {filler} expose_hidden: {'true' if exposed else 'false'}"
        return Definition(
            f'type: "{kind}" recurrent_param {{ {text} }}', bottoms, "data diff param_diff", tops=1 + states
        )

    return define


def with_base(kind: str) -> Callable[[Random], str]:
    def fields(random: Random) -> str:
        base, shift = choice(random, -1, number(random)), choice(random, 0, number(random))
        return f'type: "{kind}" {kind.lower()}_param {{ base: {base} scale: {number(random)} shift: {shift} }}'

    return fields


def power(random: Random) -> str:
    exponent, scale = choice(random, 0, 1, 2, number(random, -2)), choice(random, 0, 1, number(random))
    return (
        f'type: "Power" power_param {{ power: {exponent} scale: {scale} shift: {choice(random, 0, number(random))} }}'
    )


TYPES: dict[str, Callable[[Random], Definition]] = {
    "BNLL": elementwise(lambda random: 'type: "BNLL"'),
    "ELU": elementwise(lambda random: f'type: "ELU" elu_param {{ alpha: {number(random)} }}'),
    "Exp": elementwise(with_base("Exp")),
    "Log": elementwise(with_base("Log"), positive=True),
    "Power": elementwise(power, positive=True),
    "Sigmoid": elementwise(lambda random: 'type: "Sigmoid"'),
    "Swish": elementwise(lambda random: f'type: "Swish" swish_param {{ beta: {number(random)} }}'),
    "TanH": elementwise(lambda random: 'type: "TanH"'),
    "Convolution": sliding("Convolution"),
    "Deconvolution": sliding("Deconvolution"),
    "InnerProduct": inner_product,
    "Embed": embed,
    "Bias": scaled("Bias"),
    "Scale": scaled("Scale"),
    "Eltwise": eltwise,
    "Reduction": reduction,
    "BatchNorm": batch_norm,
    "MVN": mvn,
    "LRN": lrn,
    "Softmax": softmax,
    "SoftmaxWithLoss": softmax_loss("SoftmaxWithLoss"),
    "InfogainLoss": softmax_loss("InfogainLoss"),
    "SigmoidCrossEntropyLoss": sigmoid_loss,
    "ContrastiveLoss": contrastive,
    "EuclideanLoss": plain_loss("EuclideanLoss", label=False),
    "HingeLoss": plain_loss("HingeLoss", label=True),
    "MultinomialLogisticLoss": plain_loss("MultinomialLogisticLoss", label=True, positive=True),
    "LSTMUnit": lstm_unit,
    "LSTM": recurrent("LSTM"),
    "RNN": recurrent("RNN"),
}


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("layer_type", TYPES)
def test_a_random_layer_is_within_its_bounds(
    layer_type: str, seed: int, tmp_path: Path, engine: Engine, shares: Callable[[np.ndarray, Bounded], np.ndarray]
) -> None:
    random = Random(seed)
    case = play(tmp_path, TYPES[layer_type](random), random, engine)
    assert "fatal" not in case.recorded.values, case.recorded.values
    bounds = bounds_of(case)
    assert bounds
    for name, bound in bounds.items():
        got = case.recorded.arrays[name]
        assert got.shape == bound.shape and (shares(got, bound) <= 1).all(), name
