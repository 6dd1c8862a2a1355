"""``conformance record`` and ``new``, and what ``--recordings`` compares; stand-ins take the original's place."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance import cli, scaffold
from conformance.cases import find_cases, read_case
from conformance.engines.original import OriginalEngine, OriginalFatal, Process
from conformance.outcome import Unsupported
from conformance.record import suite

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = cli.default_fixtures()

# A program that answers as record_rng does, of refcaffe's streams.
RNG = """
import numpy as np
from refcaffe.rng import Stream, nextafter
types = {"float": np.float32, "double": np.float64, "int": np.int32, "uint": np.uint32}
def number(t, digits):
    return np.frombuffer(bytes.fromhex(digits), types[t])[0]
stream = None
for line in sys.stdin:
    name, *words = line.split()
    before = stream.draws if stream else 0
    values = np.zeros(0)
    try:
        if name == "seed":
            stream, before = Stream(int(words[0])), 0
        elif name == "rand":
            values = stream.raws(int(words[0]))
        elif name == "skip":
            stream.skip(int(words[0]))
        elif name in ("uniform", "gaussian"):
            t, a, b, n = words
            values = np.zeros(max(int(n), 0), types[t])
            getattr(stream, name)(int(n), number(t, a), number(t, b), values)
        elif name == "bernoulli":
            r, t, p, n = words
            values = np.zeros(max(int(n), 0), types[r])
            stream.bernoulli(int(n), number(t, p), values)
        elif name == "shuffle":
            values = np.arange(int(words[0]), dtype=np.int32)
            stream.shuffle(values)
        elif name == "sub_rng":
            values = stream.sub_stream().raws(int(words[0]))
        elif name == "nextafter":
            values = np.array([nextafter(number(*words))])
        elif name == "null":
            arguments = (0.5,) if words[0] == "bernoulli" else (0.0, 1.0)
            getattr(stream, words[0])(1, *map(np.float32, arguments), None)
    except refcaffe.CheckError as error:
        sys.stderr.write(f"F0101 00:00:00.000000 1 {error.file}:1] {error.message}\\n")
        sys.stderr.flush()
        os.abort()
    print(stream.draws - before, stream.peek(), values.tobytes().hex() or "-", flush=True)
"""
TOOL = """
import runpy
sys.argv[:1] = ["refcaffe", "upgrade_net_proto_text"]
runpy.run_module("refcaffe", run_name="__main__")
"""


def program(path: Path, code: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    head = f"#!{sys.executable}\nimport os, sys\nsys.path.insert(0, {str(ROOT)!r})\nimport refcaffe\n"
    path.write_text(head + code)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    return program(tmp_path / "programs" / "record_rng", RNG).parent


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    return program(tmp_path / "tools" / "upgrade_net_proto_text", TOOL).parent


@pytest.mark.parametrize("name", ["shuffle/", "errors/", "sub-rng/", "nextafter/", "bernoulli/"])
def test_random_streams_through_a_program(programs: Path, name: str) -> None:
    found = [case for case in find_cases(FIXTURES / "rng") if case.name.startswith(name)]
    written = suite.record(found[0], OriginalEngine(programs))
    assert suite.differences(found[0], written) == []


def test_a_program_that_ends_is_a_fatal_error(programs: Path) -> None:
    process = Process(programs / "record_rng")
    process.ask("seed", 1)
    with pytest.raises(OriginalFatal, match="r ") as caught:
        process.ask("null", "uniform")
    assert caught.value.file == "math_functions.cpp"
    with pytest.raises(OriginalFatal):
        process.ask("rand", 1)
    process.close()


def test_programs_are_found_from_another_folder(
    programs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(programs.parent)
    engine = OriginalEngine(Path(programs.name))
    monkeypatch.chdir(tmp_path)
    case = find_cases(FIXTURES / "rng/shuffle")[0]
    assert suite.differences(case, suite.record(case, engine)) == []


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    engine = OriginalEngine()
    for kind, what in {"rng": "--programs", "upgrade": "--tools", "gpumode": "a way to record kind gpumode"}.items():
        case = find_cases(FIXTURES / kind)[0]
        with pytest.raises(Unsupported, match=what):
            suite.record(case, engine)


def test_a_case_that_differs_is_written_anew(programs: Path, tmp_path: Path) -> None:
    case = find_cases(FIXTURES / "rng/shuffle")[0]
    folder = tmp_path / "changed"
    shutil.copytree(case.folder, folder)
    document = json.loads((folder / "case.json").read_text())
    document["recorded"]["scripts"][0][0]["next"] += 1
    (folder / "case.json").write_text(json.dumps(document))
    changed = read_case(folder)
    found = suite.write(changed, suite.record(changed, OriginalEngine(programs)), tmp_path / "out", "mine")
    assert len(found) == 1 and "next" in found[0]
    again = read_case(tmp_path / "out")
    assert again.upstream == "mine" and again.document["recorded"] == case.document["recorded"]
    assert all(np.array_equal(case.recorded.arrays[k], v) for k, v in again.recorded.arrays.items())


def test_the_command_leads_all_ways(
    programs: Path, tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cases, out = tmp_path / "cases", tmp_path / "out"
    upgrades = find_cases(FIXTURES / "upgrade")
    text = next(case for case in upgrades if case.given["tool"] == "upgrade_net_proto_text")
    for name in (
        "layer/relu/default",
        "rng/shuffle/" + find_cases(FIXTURES / "rng/shuffle")[0].name.split("/")[1],
        text.id,
    ):
        shutil.copytree(FIXTURES / name, cases / name)
    words = ["record", "--cases", str(cases), "--out", str(out), "--programs", str(programs), "--tools", str(tools)]
    python = ["--python", f"{sys.executable} -m refcaffe", "--upstream", "bvlc-1.0-cpu", "--source", "here"]
    assert cli.main([*words, *python, "--kind", "layer", "--kind", "rng", "--kind", "upgrade"]) == 0
    assert "3 same" in capsys.readouterr().out
    record = json.loads((out / "record.json").read_text())["cases"]
    assert all(entry == {"status": "same"} for entry in record.values()) and len(record) == 3
    assert json.loads((out / "provenance.json").read_text())["upstreams"]["bvlc-1.0-cpu"]["source"] == "here"
    assert cli.main([*words, "--kind", "layer"]) == 1
    assert "1 not recorded: it needs a Python with caffe, which is given by --python" in capsys.readouterr().out


def test_recordings_are_compared_like_an_engine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shipped cases themselves as another Caffe's: all equal; one altered in them is found."""
    names = ("layer/softmax", "net/weights", "transform/encoded", "rng/shuffle", "upgrade/text", "syncedmem/cpu-only",
             "snapshot/written", "error/net", "data/db", "blob/share")  # fmt: skip
    patterns = [word for name in names for word in ("--case", f"{name}/*")]
    assert cli.main(["run", "--recordings", str(FIXTURES), "--fixtures", str(FIXTURES), *patterns]) == 0
    other = tmp_path / "layer/softmax"
    shutil.copytree(FIXTURES / "layer/softmax", other)
    victim = next(case for case in find_cases(other) if case.recorded.arrays)
    arrays = {name: array + np.float32(1) for name, array in victim.recorded.arrays.items()}
    np.savez(victim.folder / "recorded.npz", **arrays)
    capsys.readouterr()
    assert (
        cli.main(["run", "--recordings", str(tmp_path), "--fixtures", str(FIXTURES), "--case", "layer/softmax/*"]) == 1
    )
    out = capsys.readouterr().out
    assert f"layer/{victim.name}: failed" in out and ", 1 failed" in out
    assert cli.main(["run", "--recordings", str(tmp_path / "none"), "--fixtures", str(FIXTURES)]) == 2


# --- new cases


def new(tmp_path: Path, text: str, *words: str) -> int:
    file = tmp_path / "one.prototxt"
    file.write_text(text)
    return cli.main(["new", "layer", "mine", "--prototxt", str(file), "--out", str(tmp_path / "cases"), *words])


@pytest.mark.parametrize(
    ("text", "words", "classes"),
    [
        ('type: "ReLU" bottom: "a" top: "b"', ["--bottom", "a:2x3"], {"data": "bitwise", "diff": "bitwise"}),
        ('type: "ReLU" bottom: "a" top: "a"', ["--bottom", "a:2,3"], {"data": "bitwise", "diff": "bitwise"}),
        ('type: "Sigmoid" bottom: "a" top: "b"', ["--bottom", "a:4"], {"data": "libm", "diff": "libm"}),
        (
            'type: "InnerProduct" bottom: "a" top: "b" loss_weight: 1 '
            'inner_product_param { num_output: 3 weight_filler { type: "xavier" } }',
            ["--bottom", "a:4x5", "--parameter", "a", "--no-force-backward"],
            {"data": "blas", "loss": "blas", "diff": "blas", "param_diff": "blas"},
        ),
        (
            'type: "SoftmaxWithLoss" bottom: "a" bottom: "l" top: "loss"',
            [
                "--bottom",
                "a:4x5",
                "--bottom",
                "l:4:0..4",
                "--steps",
                "forward,backward,clear_param_diffs,forward,backward",
            ],
            {"data": "blas", "diff": "blas", "loss": "blas"},
        ),
    ],
)
def test_a_new_case_is_valid_and_passes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], classes: dict[str, str]
) -> None:
    assert new(tmp_path, f'layer {{ name: "x" {text} }}', *words) == 0
    (case,) = find_cases(tmp_path / "cases")
    assert case.upstream.startswith("refcaffe-") and case.document["exactness"] == classes
    assert cli.main(["check", "--fixtures", str(tmp_path / "cases")]) == 0
    assert cli.main(["run", "--fixtures", str(tmp_path / "cases")]) == 0
    assert cli.main(["new", "layer", case.name, "--prototxt", str(tmp_path / "one.prototxt"), *words[:2],
                     "--out", str(tmp_path / "cases")]) == 2  # fmt: skip
    assert "is there already" in capsys.readouterr().err


def test_given_arrays_are_taken(tmp_path: Path) -> None:
    given = {
        "a": np.arange(6, dtype=np.float64).reshape(2, 3),
        "s1.diff.b": np.ones((2, 3)),
        "param.0": np.full(3, 0.5),
    }
    np.savez(tmp_path / "given.npz", **given)
    text = (
        'layer { name: "x" type: "PReLU" bottom: "a" top: "b" } layer { name: "y" type: "ReLU" bottom: "b" top: "c" }'
    )
    assert new(tmp_path, text, "--layer", "x", "--given", str(tmp_path / "given.npz"), "--seed", "3") == 0
    (case,) = find_cases(tmp_path / "cases")
    assert case.name == "p_re_lu/mine" or case.name == "prelu/mine"
    assert case.given["params"] == 1 and case.given["bottoms"][0]["shape"] == [2, 3]
    assert (
        np.array_equal(case.given_arrays["s0.data.a"], given["a"])
        and case.given_arrays["s1.diff.b"].dtype == np.float32
    )
    assert np.array_equal(case.recorded.arrays["s0.data.b"], given["a"])


def test_a_refusal_is_a_case_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert new(tmp_path, 'layer { type: "Pooling" bottom: "a" top: "b" pooling_param { kernel_size: 2 pad: 2 } }',
               "--bottom", "a:1x1x4x4") == 0  # fmt: skip
    (case,) = find_cases(tmp_path / "cases")
    assert case.document["recorded"]["fatal"]["step"] == "setup" and "refused: " in capsys.readouterr().out
    assert cli.main(["run", "--fixtures", str(tmp_path / "cases")]) == 0


def test_an_unrecorded_case_waits_for_a_recorder(tmp_path: Path) -> None:
    assert new(tmp_path, 'layer { type: "ReLU" bottom: "a" top: "b" }', "--bottom", "a:2", "--unrecorded") == 0
    (case,) = find_cases(tmp_path / "cases")
    assert case.upstream == "not-recorded" and case.document["recorded"] == {}
    words = ["record", "--cases", str(tmp_path / "cases"), "--out", str(tmp_path / "out"), "--upstream", "stand-in"]
    command = [sys.executable, "-m", "conformance", *words, "--python", f"{sys.executable} -m refcaffe"]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    assert cli.main(["run", "--fixtures", str(tmp_path / "out")]) == 0


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ('layer { type: "ReLU" bottom: "a" top: "b" }', [], "bottom 'a': --bottom a:SHAPE"),
        ('layer { type: "ReLU" bottom: "a" top: "b" }', ["--bottom", "c:2"], "'c' is no bottom of the layer: a"),
        ('layer { name: "p" } layer { name: "q" }', [], "there: p, q"),
        ("layer {", [], "cannot be read"),
        (
            'layer { type: "ReLU" bottom: "a" top: "b" }',
            ["--bottom", "a:2", "--steps", "sideways"],
            "'sideways' is no step",
        ),
        ('layer { type: "Eltwise" bottom: "a" bottom: "a" top: "b" }', ["--bottom", "a:2"], "given twice"),
    ],
)
def test_what_is_wrong_with_the_input_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: list[str], message: str
) -> None:
    assert new(tmp_path, text, *words) == 2
    assert message in capsys.readouterr().err and not (tmp_path / "cases").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x:2x3", scaffold.Bottom("x", (2, 3))),
        ("x:2,3", scaffold.Bottom("x", (2, 3))),
        ("x:", scaffold.Bottom("x", ())),
        ("x:4:-1..9", scaffold.Bottom("x", (4,), (-1, 9))),
        ("x", None),
        ("x:2x", None),
    ],
)
def test_bottoms_in_words(text: str, expected: Any) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="is not name:shape"):
            scaffold.bottom(text)
    else:
        assert scaffold.bottom(text) == expected
