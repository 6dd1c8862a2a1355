"""``record_pycaffe.py``: on refcaffe, whose recordings must be the shipped ones to the byte, and on an old pycaffe."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.cases import find_cases
from conformance.cli import default_fixtures
from conformance.record import record_pycaffe

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SCRIPT = Path(record_pycaffe.__file__)
FIXTURES = default_fixtures()
# Cases in which everything is of class bitwise, of every kind that the script records.
BITWISE = (
    "layer/relu/in-place", "layer/concat/single-bottom", "layer/pooling/error-pad",
    "layer/batch_reindex/two-rows-then-none", "filler/uniform/range-4d", "net/structure/types",
    "solver/action/stop-in-test", "snapshot/written/net-no-name", "error/net/reshape-axes", "data/dummy/mixed",
)  # fmt: skip


def record(
    out: Path, *words: Any, inside: bool = True, launcher: str = f"{sys.executable} -m refcaffe"
) -> dict[str, Any]:
    """Run the script on refcaffe; the cases of its record.json."""
    more = ["--inside", str(HERE / "inside")] if inside else []
    command = [sys.executable, str(SCRIPT), "--out", str(out), "--launcher", launcher, *more, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((out / "record.json").read_text())["cases"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, Any]]]:
    out = tmp_path_factory.mktemp("recorded")
    cases = record(out, "--upstream", "bvlc-1.0-cpu", *(FIXTURES / name for name in BITWISE))
    yield out, cases
    shutil.rmtree(out)


@pytest.mark.parametrize("name", BITWISE)
def test_a_case_recorded_again_has_the_same_bytes(recorded: tuple[Path, dict[str, Any]], name: str) -> None:
    out, cases = recorded
    assert cases[name] == {"status": "same"}
    files = [path.relative_to(FIXTURES) for path in (FIXTURES / name).rglob("*") if path.is_file()]
    assert all((out / file).read_bytes() == (FIXTURES / file).read_bytes() for file in files)


def test_the_recording_says_who_recorded(recorded: tuple[Path, dict[str, Any]]) -> None:
    provenance = json.loads((recorded[0] / "provenance.json").read_text())
    assert "bvlc-1.0-cpu" in provenance["upstreams"] and provenance["environment"]["numpy (pycaffe)"] == np.__version__


def test_what_is_not_shipped_is_found_out_anew(tmp_path: Path) -> None:
    """Without its recording a case gets the same one, and one that says something else differs."""
    new, other = tmp_path / "cases" / "new", tmp_path / "cases" / "other"
    for folder in (new, other):
        shutil.copytree(FIXTURES / "layer/relu/slope", folder)
    document = json.loads((new / "case.json").read_text())
    (new / "case.json").write_text(json.dumps(document | {"name": "relu/new", "recorded": {}}))
    (new / "recorded.npz").unlink()
    document["recorded"]["loss_weights"] = [1.0]
    (other / "case.json").write_text(json.dumps(document | {"name": "relu/other"}))
    cases = record(tmp_path / "out", tmp_path / "cases")
    assert cases["layer/relu/new"]["status"] == "new"
    assert cases["layer/relu/other"] == {"status": "differs", "in": ["loss_weights"]}
    shipped = (FIXTURES / "layer/relu/slope/recorded.npz").read_bytes()
    assert (tmp_path / "out/layer/relu/new/recorded.npz").read_bytes() == shipped
    rewritten = json.loads((tmp_path / "out/layer/relu/other/case.json").read_text())
    assert rewritten["upstream"] == "local" and rewritten["recorded"]["loss_weights"] == [0.0]


def test_what_cannot_be_recorded_says_why(tmp_path: Path) -> None:
    cases = record(tmp_path, FIXTURES / "net/structure/types", FIXTURES / "rng/shuffle/sizes", inside=False)
    assert cases["net/structure/types"]["reason"].startswith("it needs caffe_inside")
    assert all(entry["status"] == "not recorded" for entry in cases.values())
    assert not (tmp_path / "net").exists()


def test_a_case_is_never_written_over_itself(tmp_path: Path) -> None:
    folder = tmp_path / "layer/relu/default"
    shutil.copytree(FIXTURES / "layer/relu/default", folder)
    command = [
        sys.executable,
        str(SCRIPT),
        "--out",
        str(tmp_path),
        "--launcher",
        f"{sys.executable} -m refcaffe",
        str(folder),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode and "would write over the case itself" in done.stderr
    assert (folder / "case.json").read_bytes() == (FIXTURES / "layer/relu/default/case.json").read_bytes()


def pythons() -> list[str]:
    """This Python, and old ones that are here and have NumPy."""
    found = [sys.executable]
    for name in ("python2.7", "python3.5", "python3.6"):
        path = shutil.which(name)
        if path and subprocess.run([path, "-c", "import numpy"], capture_output=True, check=False).returncode == 0:
            found.append(path)
    return found


@pytest.mark.parametrize("python", pythons())
def test_an_old_pycaffe_under_an_old_python(tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(HERE / "old_caffe"))
    command = [python, str(SCRIPT), "--out", str(tmp_path), "--upstream", "bvlc-1.0-cpu"]
    names = ("layer/relu/default", "layer/relu/non-finite", "layer/pooling/error-pad")
    subprocess.run([*command, *(str(FIXTURES / name) for name in names)], check=True, timeout=120, capture_output=True)
    cases = json.loads((tmp_path / "record.json").read_text())["cases"]
    assert cases["layer/relu/default"] == {"status": "same"}
    assert cases["layer/pooling/error-pad"] == {"status": "differs", "in": ["fatal"]}
    document = json.loads((tmp_path / "layer/pooling/error-pad/case.json").read_text())
    assert document["recorded"]["fatal"] == {"step": "setup", "message": "Check failed: no such layer"}


@pytest.mark.parametrize("name", ["python2.7", "python3.5", "python3.6"])
def test_the_script_is_a_program_of_old_pythons(name: str) -> None:
    path = shutil.which(name)
    command = [path or "", "-c", "import sys; compile(open(sys.argv[1], 'rb').read(), 'script', 'exec')", str(SCRIPT)]
    if path is None or subprocess.run([path, "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"{name} is not here")
    subprocess.run(command, check=True)


def test_what_a_process_said_is_told_apart() -> None:
    text = (
        "WARNING: Logging before InitGoogleLogging() is written to STDERR\n@@at 0\n"
        "I1130 10:00:00.000001    12 solver.cpp:44] first\nsecond line\n"
        "[libprotobuf ERROR google/protobuf/text_format.cc:307] Error parsing\nnoise\n@@at 1\nown words\n"
        "F20261130 10:00:00.000001    12 net.cpp:1] Check failed: x 0x7f12\n"
        "*** Check failure stack trace: ***\n    @ 0x1\n"
    )
    log, parser, other, at = record_pycaffe.heard(text)
    assert log[0] == ["0", "I", "solver.cpp", "first\nsecond line\nnoise"] and log[1][:3] == ["1", "F", "net.cpp"]
    assert parser == [["0", "ERROR", "Error parsing"]] and other == ["own words"] and at == "1"
    assert record_pycaffe.without_addresses(log[1][3]) == "Check failed: x <PTR>"


def test_npz_files_are_written_as_the_shipped_ones_were(tmp_path: Path) -> None:
    for case in find_cases(FIXTURES / "layer/scale")[:6]:
        shipped = case.folder / "recorded.npz"
        if shipped.exists():
            names, arrays = record_pycaffe.read_npz(str(shipped))
            record_pycaffe.write_npz(str(tmp_path / "again.npz"), [(name, arrays[name]) for name in names])
            assert (tmp_path / "again.npz").read_bytes() == shipped.read_bytes(), case.id


def test_json_fits_lines_and_reads_back() -> None:
    document = {
        "short": [1, 2],
        "long": list(range(200)),
        "deep": {"list": [{"op": "net", "file": "x" * 90}] * 2},
        "none": {},
    }
    text = record_pycaffe.dumps(document)
    assert json.loads(text) == document and max(map(len, text.splitlines())) <= 120
