"""``refcaffe dump`` and ``refcaffe compare``: what a dump holds, and that the layer which is wrong is the one named."""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import conformance.dumps.walk as walking
import refcaffe as caffe
from conformance.cases import find_cases
from conformance.cli import UsageError, default_fixtures
from conformance.dumps.cli import main as compare
from conformance.dumps.reading import Dump
from refcaffe.cli import dump_in_caffe
from refcaffe.cli.main import main as refcaffe_main
from tests.dumping import dump, rerun

NET = """
name: "small"
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "label" type: "Input" top: "label" input_param { shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 5 kernel_size: 3 weight_filler { type: "xavier" } bias_filler { value: 0.1 } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "norm" type: "LRN" bottom: "conv" top: "norm" lrn_param { local_size: 3 } }
layer { name: "pool" type: "Pooling" bottom: "norm" top: "pool" pooling_param { pool: AVE kernel_size: 2 stride: 2 } }
layer { name: "sum" type: "Eltwise" bottom: "pool" bottom: "pool" top: "sum" eltwise_param { coeff: 1 coeff: 0.5 } }
layer { name: "ip" type: "InnerProduct" bottom: "sum" top: "ip"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.prototxt"
    path.write_text(NET)
    np.savez(
        tmp_path / "given.npz",
        x=np.random.RandomState(0).randn(2, 3, 8, 8).astype(np.float32),
        label=np.array([1, 3], np.float32),
    )
    return path


@pytest.fixture
def run_a(model: Path) -> Path:
    out = model.parent / "a"
    assert dump("--model", model, "--input", model.parent / "given.npz", "--out", out, "--seed", 7, "--backward") == 0
    return out


def json_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict]:
    capsys.readouterr()
    status = compare([*map(str, arguments), "--json"])
    return status, json.loads(capsys.readouterr().out)


# --- dumping


def test_a_dump_holds_every_blob_of_both_passes(model: Path, run_a: Path) -> None:
    index = json.loads((run_a / "index.json").read_text())
    names = [layer["name"] for layer in index["layers"]]
    assert "pool_pool_0_split" in names and (index["net"], index["phase"], index["seed"]) == ("small", "TEST", 7)
    caffe.set_random_seed(7)
    with caffe.Net(str(model), caffe.TEST) as net, np.load(model.parent / "given.npz") as given:
        for name in given.files:
            net.blobs[name].data[...] = given[name]
        for k, layer in enumerate(index["layers"]):
            assert [entry["shape"] for entry in layer["data"]] == [list(top.shape) for top in net.tops[k]]
            net.forward_from_to(k, k)
            for entry, top in zip(layer["data"], net.tops[k], strict=True):
                array = np.load(run_a / entry["file"])
                np.testing.assert_array_equal(array, top.data)
                assert hashlib.sha256(array.tobytes()).hexdigest() == entry["sha256"]
        assert index["loss"] == pytest.approx(float(net.blobs["loss"].data))
        net.backward()
        conv = index["layers"][names.index("conv")]
        for entry, blob in zip(conv["param_diff"], net.params["conv"], strict=True):
            np.testing.assert_array_equal(np.load(run_a / entry["file"]), blob.diff)
    before, after = (index["layers"][names.index(name)]["data"][0]["file"] for name in ("conv", "relu"))
    assert np.load(run_a / before).min() < 0 <= np.load(run_a / after).min()  # in place, and yet both are there


def test_the_printed_script_does_the_same(
    model: Path, run_a: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    capsys.readouterr()
    assert refcaffe_main(["dump", "--print-script"]) == 0
    script = tmp_path / "script.py"
    script.write_text(capsys.readouterr().out)
    options = ["--model", model, "--input", model.parent / "given.npz", "--seed", "7", "--backward"]
    command = [sys.executable, "-m", "refcaffe", script, *options, "--out", tmp_path / "b"]
    subprocess.run(list(map(str, command)), check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert (tmp_path / "b" / "index.json").read_text() == (run_a / "index.json").read_text()


def test_the_script_is_python_of_every_time() -> None:
    source = Path(dump_in_caffe.__file__)
    ast.parse(source.read_text(), feature_version=(3, 5))
    old = shutil.which("python2.7")
    if old is not None and subprocess.run([old, "-c", ""], check=False, stderr=subprocess.DEVNULL).returncode == 0:
        code = "import sys; compile(open(sys.argv[1]).read(), 'script', 'exec')"
        subprocess.run([old, "-c", code, str(source)], check=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input", "nowhere.npy"], "nowhere.npy: cannot be read"),
        (["--input", "x=x.npy", "--input", "y=x.npy"], "the net has no blob 'y'; its inputs are: x, label"),
        (["--input", "x.npy"], "which input is it?"),
        (["--out", "."], "exists, and is not empty"),
    ],
)
def test_wrong_usage_of_dump(
    model: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model.parent)
    np.save("x.npy", np.zeros((2, 3, 8, 8), np.float32))
    assert dump("--model", model, "--out", "out", *arguments) == 2
    assert message in capsys.readouterr().err


def test_a_net_without_loss_needs_force_backward(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = NET[: NET.index('layer { name: "loss"')].replace('layer { name: "label"', "# ", 1)
    (tmp_path / "deploy.prototxt").write_text(text)
    (tmp_path / "forced.prototxt").write_text(f"force_backward: true {text}")
    assert dump("--model", tmp_path / "deploy.prototxt", "--out", tmp_path / "a", "--backward") == 2
    assert "force_backward: true" in capsys.readouterr().err
    np.savez(tmp_path / "diff.npz", **{"ip.diff": np.eye(2, 4, dtype=np.float32)})
    options = ["--model", tmp_path / "forced.prototxt", "--input", tmp_path / "diff.npz", "--backward"]
    assert dump(*options, "--out", tmp_path / "b") == 0
    rerun(tmp_path / "forced.prototxt", tmp_path / "b", tmp_path / "c")
    status, found = json_of(capsys, tmp_path / "b", tmp_path / "c")
    assert status == 0 and "x.diff" in [array["name"] for array in found["arrays"]]


# --- comparing


def test_equal_runs_do_not_part(run_a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found = json_of(capsys, run_a, run_a)
    assert status == 0 and not found["parts"] and found["counts"]["equal"] == len(found["arrays"]) > 20
    assert compare([str(run_a), str(run_a)]) == 0
    assert "equal, bit for bit" in capsys.readouterr().out


def test_other_rounding_stays_within_the_bounds(
    model: Path, run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs = rerun(model, run_a, tmp_path / "b")
    status, found = json_of(capsys, run_a, tmp_path / "b")
    assert status == 0 and found["counts"]["within"] > 5 and not found["counts"]["unknown"]
    ratios = [array["a"]["ratio"] for array in found["arrays"] if array["a"]]
    assert 0 < max(ratios) <= 1
    np.savez(tmp_path / "plain.npz", **{name: array for name, array in blobs.items() if name})
    for name, array in blobs.items():
        np.save(tmp_path / "b" / f"{name}.npy", array)
    (tmp_path / "b" / "index.json").unlink()
    for plain in ("plain.npz", "b"):  # by the blobs' names alone
        status, found = json_of(capsys, run_a, tmp_path / plain)
        assert status == 0 and found["counts"]["within"] > 5


@pytest.mark.parametrize("layer", ["conv", "relu", "norm", "pool", "sum", "ip", "loss"])
def test_the_wrong_layer_is_named_though_values_drifted_before(
    model: Path, run_a: Path, tmp_path: Path, layer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def alter(name: str, array: np.ndarray) -> None:
        if name == layer:
            array.reshape(-1)[-1] += 1e-3

    rerun(model, run_a, tmp_path / "b", alter)
    for arguments in ((run_a, tmp_path / "b"), (run_a, tmp_path / "b", "--plot", tmp_path / "plot.svg")):
        status, found = json_of(capsys, *arguments)
        assert (status, found["first"]["layer"], found["first"]["a"]["ratio"] <= 1) == (1, layer, True)
        ratio = found["first"]["b"]["ratio"]  # None: the bound is 0
        assert ratio is None or ratio > 1
        assert found["summary"].endswith("B is not what the layer makes of the bottoms that B had.")
    parting = [array["layer"] for array in found["arrays"] if array["status"] == "parts" and array["what"] == "data"]
    assert parting == [layer]  # what comes after is right, given what it got
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")


def test_blobs_that_are_missing_are_computed(
    model: Path, run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of an engine that fuses layers: the error shows at the next blob that is there."""
    wrong = rerun(model, run_a, tmp_path / "b", lambda name, array: array.__iadd__(0.01 if name == "norm" else 0))
    right = rerun(model, run_a, tmp_path / "c")
    for blobs, status, name in ((right, 0, None), (wrong, 1, "pool")):
        np.savez(tmp_path / "fused.npz", pool=blobs["pool"], loss=blobs["loss"], other=np.zeros(3))
        got, found = json_of(capsys, run_a, tmp_path / "fused.npz")
        assert got == status and (found["first"] or {}).get("name") == name
        assert found["only_in_b"] == ["other"] and found["counts"]["missing"] > 5
    assert compare([str(run_a), str(tmp_path / "fused.npz")]) == 1
    assert "missing: " in capsys.readouterr().out
    np.savez(tmp_path / "fused.npz", pool=right["pool"], loss=right["loss"])
    assert compare([str(run_a), str(tmp_path / "fused.npz"), "--strict"]) == 1


def test_shapes(model: Path, run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blobs = rerun(model, run_a, tmp_path / "b")
    np.savez(tmp_path / "ones.npz", ip=blobs["ip"].reshape(2, 4, 1, 1), loss=blobs["loss"].reshape(1))
    status, found = json_of(capsys, run_a, tmp_path / "ones.npz")
    notes = {array["name"]: array["note"] for array in found["arrays"]}
    assert status == 0 and notes["ip"] == "shape [2, 4] in A, [2, 4, 1, 1] in B"
    np.savez(tmp_path / "turned.npz", ip=blobs["ip"].T, loss=blobs["loss"])
    status, found = json_of(capsys, run_a, tmp_path / "turned.npz")
    assert status == 1 and found["first"]["name"] == "ip"
    assert found["summary"].endswith("ip: shape [2, 4] in A, [4, 2] in B.")


def test_other_inputs_and_parameters(model: Path, run_a: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--input", model.parent / "given.npz"]
    assert dump("--model", model, "--out", model.parent / "drawn", "--seed", 7) == 0
    assert dump("--model", model, "--out", model.parent / "other", "--seed", 8, *given) == 0
    status, found = json_of(capsys, run_a, model.parent / "drawn")
    assert status == 1 and found["summary"].endswith("x: the runs were given other inputs.")
    status, found = json_of(capsys, run_a, model.parent / "other")
    assert status == 1 and found["summary"].endswith("conv[0]: the runs have other parameters.")
    assert {array["what"] for array in found["arrays"] if array["status"] == "parts"} == {"param"}


def test_dropped_units_are_taken_from_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "net.prototxt"
    dropout = 'layer { name: "drop" type: "Dropout" bottom: "sum" top: "sum" dropout_param { dropout_ratio: 0.4 } }'
    at = NET.index('layer { name: "ip"')
    model.write_text(NET[:at] + dropout + NET[at:])
    options = ["--model", model, "--phase", "TRAIN", "--backward", "--seed", 3]
    assert dump(*options, "--out", tmp_path / "a") == 0
    rerun(model, tmp_path / "a", tmp_path / "b")

    def flip(name: str, array: np.ndarray) -> None:
        if name == "drop":
            array.reshape(-1)[np.flatnonzero(array)[0]] = 0

    rerun(model, tmp_path / "a", tmp_path / "c", flip)
    status, found = json_of(capsys, tmp_path / "a", tmp_path / "b")
    assert status == 0 and not found["counts"]["unknown"]
    status, found = json_of(capsys, tmp_path / "a", tmp_path / "c")
    assert status == 1 and found["summary"].endswith("other random numbers.")


def test_a_layer_type_that_nobody_knows(
    model: Path, run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As of a Caffe with layers of its own: the rest is compared."""
    rerun(model, run_a, tmp_path / "b", lambda name, array: array.__iadd__(0.01 if name == "norm" else 0))
    definition = run_a / "net.prototxt"
    definition.write_text(definition.read_text().replace('type: "LRN"', 'type: "Fancy" fancy_param { depth: 3 }'))
    status, found = json_of(capsys, run_a, tmp_path / "b")
    unknown = [array for array in found["arrays"] if array["status"] == "unknown"]
    assert status == 0 and "no formula for layer type Fancy" in unknown[0]["note"]
    assert compare([str(run_a), str(tmp_path / "b"), "--strict"]) == 1


def test_wrong_usage_of_compare(run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    for words, message in (
        ([run_a, tmp_path / "nowhere"], "no folder and no .npz file"),
        ([run_a, tmp_path / "empty"], "neither an index.json nor .npy files"),
        ([tmp_path / "x.npz", tmp_path / "x.npz"], "neither run has an index.json"),
    ):
        assert compare(list(map(str, words))) == 2
        assert message in capsys.readouterr().err
    for text, message in (
        ("{", "cannot be read"),
        ('{"format": "x"}', "its 'format' is not 'caffe-dump 1'"),
        ('{"format": "caffe-dump 1"}', "'layers' is no list"),
        ('{"format": "caffe-dump 1", "layers": [{"name": "x", "data": [3]}]}', "an entry without a 'file'"),
    ):
        (tmp_path / "empty" / "index.json").write_text(text)
        assert compare([str(run_a), str(tmp_path / "empty")]) == 2
        assert message in capsys.readouterr().err
    file = next((run_a / "data").iterdir())
    np.save(file, np.load(file) + 1)
    assert compare([str(run_a), str(run_a)]) == 2
    assert "is not what index.json says" in capsys.readouterr().err


def test_which_run_comes_first_does_not_matter_for_what_is_found(
    model: Path, run_a: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blobs = rerun(model, run_a, tmp_path / "b", lambda name, array: array.__iadd__(0.01 if name == "pool" else 0))
    np.savez(tmp_path / "plain.npz", **{name: array for name, array in blobs.items() if name})
    assert json_of(capsys, tmp_path / "plain.npz", run_a) == json_of(capsys, run_a, tmp_path / "plain.npz")


# --- the rules, on what was recorded


def _layer_cases() -> list[Path]:
    try:
        folder = default_fixtures() / "layer"
    except UsageError:
        return []
    found = [case for case in find_cases(folder) if "fatal" not in case.document["recorded"]]
    return [case.folder for case in found if case.group not in ("dummy_data", "input")][::6]


@pytest.mark.parametrize("folder", [pytest.param(path, id="/".join(path.parts[-2:])) for path in _layer_cases()])
def test_no_right_layer_is_accused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two right runs in different precision, every number judged: a formula that is wrong, or too strict, shows."""
    case = next(iter(find_cases(folder)))
    monkeypatch.chdir(folder)
    phase = case.given["phase"]
    with caffe.Net("net.prototxt", ("TRAIN", "TEST").index(phase)) as net:
        for i in range(case.given["params"]):
            net.all_layers[-1].blobs[i].data[...] = case.given_arrays[f"param.{i}"]
        inputs = {}
        for key, array in case.given_arrays.items():
            name = key.removeprefix("s0.data.")
            if name in net.inputs:
                inputs[name] = array
            elif name in net.params and key != name:
                net.params[name][0].data[...] = array.reshape(net.params[name][0].shape)
        net.save(tmp_path / "w.caffemodel")
        backward = "backward" in case.given["steps"] and (any(net.loss_weights) or case.given["force_backward"])
    np.savez(tmp_path / "x.npz", **inputs)
    options = ["--model", "net.prototxt", "--weights", tmp_path / "w.caffemodel", "--phase", phase, "--seed", 5]
    options += ["--input", tmp_path / "x.npz", *(["--backward"] if backward else [])]
    assert dump(*options, "--out", tmp_path / "a") == 0
    rerun("net.prototxt", tmp_path / "a", tmp_path / "b")
    same = walking.same_numbers
    monkeypatch.setattr(walking, "same_numbers", lambda a, b: a.dtype != np.float32 and same(a, b))
    found = walking.compare(Dump(tmp_path / "a"), Dump(tmp_path / "b"))
    assert [
        v for v in found.verdicts if v.status == walking.PARTS and v.note != "the runs were given other inputs"
    ] == []
