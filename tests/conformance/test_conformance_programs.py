"""Programs as processes: what they say is read, differences in it are caught, signals reach them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.cases import Recording, read_case
from conformance.engines import Engine
from conformance.outcome import Outcome, Status
from conformance.processes import Programs, read_stderr
from conformance.run import run_case

LOG = "I1130 09:50:02.123456  4321 "


def test_standard_error_is_read_line_by_line() -> None:
    said = read_stderr(
        [
            "ERROR: unknown command line flag 'x'",
            f"{LOG}net.cpp:40] Initializing net from parameters: ",
            'name: "n"',
            "[libprotobuf ERROR google/protobuf/text_format.cc:335] Error parsing",
            "E20261130 09:50:02.123456 4321 caffe.cpp:40] \tfly",
            "Traceback (most recent call last):",
            '  File "x.py", line 1, in <module>',
            "KeyError: 1",
            "",
            "During handling of the above exception, another exception occurred:",
            "",
            "Traceback (most recent call last):",
            "    raise",
            "ValueError: no",
            "F1130 09:50:02.123456  4321 io.hpp:9] Check failed: a ",
            "*** Check failure stack trace: ***",
            "    @     0x7f  main",
        ]
    )
    assert said["other_stderr"] == ["ERROR: unknown command line flag 'x'"]
    assert said["parser"] == [["ERROR", "Error parsing"]]
    assert said["python"] == ["KeyError: 1", "ValueError: no"]
    assert said["log"][0] == ["I", "net.cpp", 'Initializing net from parameters: \nname: "n"']
    assert [line[0] for line in said["log"]] == ["I", "E", "F"]


SCRIPT = """
import signal, sys, time
stop = []
signal.signal(signal.SIGINT, lambda *_: stop.append(1))
print(r"I1130 09:50:02.123456  4321 caffe.cpp:1] Starting", file=sys.stderr, flush=True)
while not stop:
    time.sleep(0.01)
print("out")
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("status", "exit_code", "number"), [(0, 0, None), (3, 3, None), (134, None, 6)])
def test_a_process_gets_its_signal_and_its_end_is_told(
    tmp_path: Path, status: int, exit_code: int | None, number: int | None
) -> None:
    programs = Programs("x", "1", lambda program, words: [sys.executable, "-c", SCRIPT, *words])
    run = programs.run("x", [str(status)], tmp_path, [{"after": "Starting", "wait_s": 0, "signal": "SIGINT"}])
    assert (run["exit"], run["signal"], run["stdout"]) == (exit_code, number, "out\n")
    assert run["log"] == [["I", "caffe.cpp", "Starting"]]


USAGE = "caffe: command line brew\nusage: caffe <command> <args>\n\ncommands:\n  train  train\n"


def one_run(**keys: Any) -> dict[str, Any]:
    return {"exit": 0, "signal": None, "stdout": "", "log": [], "parser": [], "other_stderr": [], **keys}


@pytest.fixture
def judged(make_case: Callable[..., Path], replay: Any) -> Callable[..., Outcome]:
    """Judge a run against a recorded one."""

    def judge(recorded: dict[str, Any], got: dict[str, Any], files: Any = None, program: Any = None) -> Outcome:
        left = files or [{}, {}]
        folder = make_case(
            "cli/a/b", given={"runs": [{"args": []}]}, recorded={"runs": [one_run(**recorded)], "files": left[0]}
        )

        def alter(recording: Recording) -> None:
            recording.values["runs"] = [one_run(**got)]
            recording.values["files"] = left[1]
            if program:
                recording.values["program"] = program

        return run_case(read_case(folder), replay(alter))

    return judge


def test_a_usage_may_list_more_but_nothing_less(judged: Any, tmp_path: Path) -> None:
    longer = USAGE.replace("caffe", "refcaffe") + "  plot   draw\n"
    assert judged({"stdout": USAGE}, {"stdout": longer}, program=["refcaffe", "7"]).status is Status.PASSED


@pytest.mark.parametrize(
    ("recorded", "got", "shown"),
    [
        ({"stdout": USAGE}, {"stdout": USAGE.replace("  train  train\n", "")}, "  train  train"),
        ({"stdout": "caffe version 1.0.0\n"}, {"stdout": "caffe 1.0.0\n"}, "runs[0].stdout"),
        ({"exit": None, "signal": 6}, {}, "runs[0].exit"),
        ({"other_stderr": ["ERROR: a"]}, {"other_stderr": ["ERROR: b"]}, "runs[0].other_stderr[0]"),
        ({"log": [["I", "a.cpp", "x"]]}, {"log": [["E", "a.cpp", "x"]]}, "log[0][1]"),
        ({"log": [["I", "a.cpp", "loss = 0.5"]]}, {"log": [["I", "a.cpp", "loss = 0.50001"]]}, "log[0]"),
        ({"log": [["I", "a.cpp", "x\nKeyError: 1"]], "exit": 1},
         {"log": [["I", "a.cpp", "x"]], "exit": 1, "python": ["KeyError: 2"]}, "exception"),
    ],
)  # fmt: skip
def test_a_difference_is_caught(judged: Any, recorded: dict[str, Any], got: dict[str, Any], shown: str) -> None:
    outcome = judged(recorded, got)
    assert outcome.status is Status.FAILED
    assert shown in str(outcome)


@pytest.mark.parametrize(
    ("recorded", "got"),
    [
        ({"log": [["I", "a.cpp", "Iteration 2 (<R> iter/s, <T>s/2 iters), loss = 1.5"]]},
         {"log": [["I", "a.cpp", "Iteration 2 (9.5 iter/s, 0.1s/2 iters), loss = 1.50001"]]}),
        ({"log": [["I", "a.cpp", "ip\tforward: <T> ms."]]}, {"log": [["I", "a.cpp", "ip\tforward: 1.5e-05 ms."]]}),
        ({"exit": None, "signal": 6}, {"exit": None, "signal": 6, "log": [["F", "caffe.cpp", "no number"]]}),
        ({"log": [["I", "a.cpp", "x\nHDF5-DIAG: Error detected in HDF5\n  #000: no file\n, name = 'b'"]]},
         {"log": [["I", "a.cpp", "x"]]}),
        ({"log": [["I", "a.cpp", "x\nTypeError: no C++ type: X"]], "exit": 1},
         {"log": [["I", "a.cpp", "x"]], "exit": 1, "python": ["TypeError: no layer"]}),
    ],
)  # fmt: skip
def test_what_may_differ(judged: Any, recorded: dict[str, Any], got: dict[str, Any]) -> None:
    assert judged(recorded, got).status is Status.PASSED


def test_files_are_compared_by_name_and_size(judged: Any) -> None:
    sized = {"a": {"size": 5, "sha256": "0"}, "b.h5": {}}
    assert judged({}, {}, [sized, {"a": {"size": 5}, "b.h5": {"size": 9}}]).status is Status.PASSED


@pytest.mark.parametrize("left", [{}, {"a": {"size": 6}}, {"a": {"size": 5}, "a.tmp": {"size": 1}}])
def test_a_file_too_few_too_many_or_of_another_size_is_caught(judged: Any, left: dict[str, Any]) -> None:
    assert judged({}, {}, [{"a": {"size": 5}}, left]).status is Status.FAILED


def test_what_a_tool_wrote_is_compared_byte_by_byte(make_case: Callable[..., Path], replay: Any) -> None:
    recorded = {"exit": 0, "signal": None, "stdout": "", "log": [], "parser": [], "output": "out/new.prototxt"}
    folder = make_case("upgrade/a/b", given={"tool": "t", "input": "old", "output": "new"}, recorded=recorded)
    (folder / "out").mkdir()
    (folder / "out/new.prototxt").write_text('name: "a"\n')
    for text, status in (('name: "a"\n', Status.PASSED), ('name: "b"\n', Status.FAILED), (None, Status.FAILED)):
        written = None if text is None else text.encode()
        outcome = run_case(read_case(folder), replay(lambda r, written=written: r.values.update(written=written)))
        assert outcome.status is status
    (folder / "out/new.prototxt").unlink()
    assert "is not there" in run_case(read_case(folder), replay()).reason


def test_an_engine_without_programs_is_unsupported(make_case: Callable[..., Path]) -> None:
    folder = make_case("cli/a/b", given={"runs": []}, recorded={"runs": [], "files": {}})
    outcome = run_case(read_case(folder), type("Bare", (Engine,), {})())
    assert outcome.status is Status.UNSUPPORTED
    assert "programs" in outcome.reason
