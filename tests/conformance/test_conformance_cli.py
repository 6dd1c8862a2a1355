"""The command line and its reports."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import cli
from conformance.compare import Closeness, Difference
from conformance.outcome import Outcome, Status
from conformance.report import Report, as_json, one_line, summarize


def test_a_right_case_exits_0(rng_case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--fixtures", str(rng_case)]) == 0
    assert "1 of 1 cases equal, 0 failed" in capsys.readouterr().out


@pytest.mark.parametrize(("jobs", "status"), [("auto", 0), ("3", 0), ("0", 2), ("-1", 2), ("some", 2)])
def test_jobs_are_a_number_or_as_many_as_there_are_cores(rng_case: Path, jobs: str, status: int) -> None:
    words = ["run", "--fixtures", str(rng_case), "-j", jobs]
    if status:
        with pytest.raises(SystemExit, match=str(status)):
            cli.main(words)
    else:
        assert cli.main(words) == 0
        assert cli.build_parser("p").parse_args(words).jobs == (os.cpu_count() if jobs == "auto" else int(jobs))


def test_a_wrong_case_exits_1_and_shows_the_first_difference(
    rng_case: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads((rng_case / "case.json").read_text())
    document["recorded"]["scripts"][0][0]["next"] += 1
    (rng_case / "case.json").write_text(json.dumps(document))
    assert cli.main(["run", "--fixtures", str(rng_case)]) == 1
    out = capsys.readouterr().out
    assert "rng/raw/three: failed" in out and "scripts[0][0] rand(3).next: recorded" in out


def test_unsupported_cases_exit_1_unless_allowed(
    make_case: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_case("teleport/a/b")
    assert cli.main(["run", "--fixtures", str(tmp_path)]) == 1
    assert "1 not yet supported" in capsys.readouterr().out
    assert cli.main(["run", "--fixtures", str(tmp_path), "--allow-unsupported"]) == 0


@pytest.mark.parametrize("arguments", [["--case", "no/such"], ["--kind", "nothing"]])
def test_no_case_asked_for_exits_2(rng_case: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert cli.main(["run", "--fixtures", str(rng_case), *arguments]) == 2
    assert "none of the 1 cases is asked for; kinds there: rng" in capsys.readouterr().err


def test_a_missing_or_empty_folder_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "--fixtures", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert cli.main(["list", "--fixtures", str(tmp_path)]) == 2
    assert "no cases" in capsys.readouterr().err


def test_without_a_checkout_the_error_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "site-packages" / "conformance" / "cli.py"))
    assert cli.main(["list"]) == 2
    assert "--fixtures DIR" in capsys.readouterr().err
    (tmp_path / "fixtures").mkdir()
    assert cli.default_fixtures() == Path("fixtures")


def test_list_names_cases_kinds_without_runner_and_broken_ones(
    make_case: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_case("rng/a/b")
    make_case("teleport/a/b")
    (make_case("rng/a/c") / "case.json").write_text("{")
    assert cli.main(["list", "--fixtures", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "rng/a/b" and lines[1].startswith("rng/a/c  broken: ")
    assert lines[2] == "teleport/a/b  (no runner yet)"


def test_json_to_a_file_and_to_standard_output(
    rng_case: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "provenance.json").write_text('{"recorded": "2026"}')
    file = tmp_path / "report.json"
    assert cli.main(["run", "--fixtures", str(rng_case), "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    assert report["summary"] == "1 of 1 cases equal, 0 failed"
    assert report["recorded_from"] == {"recorded": "2026"} and report["engine"]["device"] == "cpu"
    assert report["kinds"]["rng"]["equal"] == 1 and report["cases"][0]["case"] == "rng/raw/three"
    capsys.readouterr()
    assert cli.main(["run", "--fixtures", str(rng_case), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == report["summary"]


@pytest.mark.parametrize("arguments", [["-j", "0"], ["-j", "many"], ["--device", "abacus"], ["--frobnicate"]])
def test_wrong_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["run", *arguments])


def test_a_device_that_is_not_there_exits_2(
    rng_case: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.delitem(sys.modules, "refcaffe.device.cuda", raising=False)
    assert cli.main(["run", "--fixtures", str(rng_case), "--device", "cuda"]) == 2
    assert "CuPy" in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], ["run"], ["list"]])
def test_help_names_every_option(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([*command, "--help"])
    out = capsys.readouterr().out
    assert ("--fixtures" in out) or not command


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_ends_cleanly(make_case: Callable[..., Path], tmp_path: Path, jobs: str) -> None:
    for number in range(6):
        script = [["skip", 100_000_000], ["rand", 1]]
        make_case(f"rng/slow/{number}", seed=1, given={"scripts": [script]}, recorded={"scripts": [[]]})
    root = Path(cli.__file__).resolve().parent.parent
    code = (
        "import conformance.cli as c; from refcaffe.cli import process; print('ready', flush=True); process.run(c.main)"
    )
    command = [sys.executable, "-c", code, "run", "--fixtures", str(tmp_path), "-j", jobs]
    process = subprocess.Popen(
        command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.5)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the workers too
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, (out, err)
    assert "interrupted" in out + err and "Traceback" not in err


def outcome(name: str, status: Status = Status.PASSED, **keys: object) -> Outcome:
    return Outcome("net", name, status, **keys)  # type: ignore[arg-type]


def test_a_summary_keeps_what_is_nearest_to_its_bound() -> None:
    far, near = Closeness("blas", 1e-6, 1e-3), Closeness("blas", 1e-7, 2e-7)
    outcomes = [
        outcome("a", worst={"blas": far}),
        outcome("b", worst={"blas": near}),
        outcome("c", Status.FAILED),
    ]
    summary = summarize(outcomes)["net"]
    assert (summary.cases, summary.passed, summary.failed, summary.unsupported) == (3, 2, 1, 0)
    assert summary.worst["blas"] == (near, "b")
    assert one_line(outcomes) == "2 of 3 cases equal, 1 failed"


def test_json_of_a_difference_without_limit_is_valid_json() -> None:
    shape = Closeness("bitwise", float("inf"), 0.0, "x", Difference("x", "float32[2]", "float32[3]"))
    failed = outcome("a", Status.FAILED, differences=[shape.difference], count=1, worst={"bitwise": shape})
    report = as_json(Report([failed], {"engine": "none"}))
    text = json.dumps(report, allow_nan=False)
    assert json.loads(text)["kinds"]["net"]["worst"]["bitwise"]["error"] is None
    assert report["cases"][0]["first"] == [{"where": "x", "recorded": "float32[2]", "got": "float32[3]"}]


def test_an_outcome_in_words() -> None:
    differences = [Difference(f"d{i}", "1", "2") for i in range(2)]
    text = str(outcome("a", Status.FAILED, differences=differences, count=9))
    assert text.splitlines() == [
        "net/a: failed",
        "  d0: recorded 1, got 2",
        "  d1: recorded 1, got 2",
        "  … and 7 more differences",
    ]
