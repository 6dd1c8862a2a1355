"""The command line, in real processes where it matters."""

import os
import signal
import subprocess
import sys
import time

import pytest

from refcaffe.cli import flags as flag_parser
from refcaffe.cli.main import main
from refcaffe.cli.training_log import parse
from tests.solvers.test_solver import NET

SOLVER = 'net: "net.prototxt" base_lr: 0.1 lr_policy: "fixed" max_iter: {iterations} display: 1 snapshot_prefix: "s"'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER.format(iterations=4))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments, **options):
    command = [sys.executable, "-m", "refcaffe", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def test_version_and_usage(capsys):
    for arguments in (["--version"], ["train", "-version", "--no-such-flag"]):
        assert main(arguments) == 0
        assert capsys.readouterr().out.startswith("refcaffe version ")
    for arguments in ([], ["train", "test"], ["--help"], ["-h"], ["train", "-helpshort"]):
        assert main(arguments) == 0
        assert "\nusage: refcaffe <command> <args>\n" in capsys.readouterr().out
    assert main(["train", "test", "--iterations=7"]) == 0
    assert "-iterations (The number of iterations to run.) type: int32 default: 50\n      currently: 7\n" in (
        capsys.readouterr().out
    )


def test_flags_with_one_dash_or_two():
    words = ["train", "-solver", "a", "--weights=b", "--iterations", "0x10", "--nologtostderr", "--sigint-effect=none"]
    flags = flag_parser.parse([*words, "--", "--gpu"])
    assert (flags.words, flags.solver, flags.weights, flags.iterations) == (["train", "--gpu"], "a", "b", 16)
    assert flags.logtostderr is False
    assert flags.sigint_effect == "none"
    assert not flags.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sover=x"], "unknown command line flag 'sover'"),
        (["--nosover"], "unknown command line flag 'nosover'"),
        (["--nosolver"], "boolean value (nosolver) specified for string command line flag"),
        (["--iterations=abc"], "illegal value 'abc' specified for int32 flag 'iterations'"),
        (["--iterations", "1_0"], "illegal value '1_0' specified for int32 flag 'iterations'"),
        (["--level=2147483648"], "illegal value '2147483648' specified for int32 flag 'level'"),
        (["--level="], "illegal value '' specified for int32 flag 'level'"),
        (["--version=maybe"], "illegal value 'maybe' specified for bool flag 'version'"),
        (["--solver"], "flag '--solver' is missing its argument; flag description: The solver definition protocol "
                       "buffer text file."),
    ],
)  # fmt: skip
def test_flags_that_are_refused(words, message, capsys):
    assert main(["train", *words]) == 1
    assert capsys.readouterr().err == f"ERROR: {message}\n"


def test_every_wrong_flag_is_told_in_order_of_the_names(capsys):
    assert main(["train", "--zoo", "--level=x", "--apes=1"]) == 1
    told = [line.split("'")[-2] for line in capsys.readouterr().err.splitlines()]
    assert told == ["apes", "level", "zoo"]


def test_training_and_testing_log_as_caffe_does(folder):
    result = run("train", "--solver=solver.prototxt")
    assert result.returncode == 0
    log = parse(result.stderr.splitlines())
    assert [iteration for iteration, _ in log.loss] == [0, 1, 2, 3, 4]
    assert [rate for _, rate in log.rate] == [0.1] * 4
    lines = [line for line in result.stderr.splitlines() if line.startswith(("I", "W", "E"))]
    assert "solver.cpp:" in "".join(lines)
    assert (folder / "s_iter_4.caffemodel").exists()
    result = run("test", "-model", "net.prototxt", "-weights", "s_iter_4.caffemodel", "-iterations", "2")
    assert result.returncode == 0
    assert "Batch 1, loss = " in result.stderr
    assert "Loss: " in result.stderr


def test_a_failed_check_is_a_fatal_line_and_status_134(folder):
    result = run("train", "--solver=none.prototxt")
    assert result.returncode == 134
    last = [line for line in result.stderr.splitlines() if line.startswith("F")]
    assert len(last) == 1
    assert "File not found: none.prototxt" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_stop_or_snapshot(folder, number):
    (folder / "solver.prototxt").write_text(SOLVER.format(iterations=10**6).replace("display: 1", "display: 50"))
    command = [sys.executable, "-m", "refcaffe", "train", "--solver=solver.prototxt"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if "Iteration 50" in line:
                process.send_signal(number)
                break
        if number == signal.SIGHUP:
            deadline = time.monotonic() + 60
            while not list(folder.glob("*.solverstate")):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(60) == 0
    assert "Optimization stopped early." in rest
    assert len(list(folder.glob("*.solverstate"))) == (1 if number == signal.SIGINT else 2)


def test_no_gpu_is_said_clearly(folder):
    result = run("train", "--solver=solver.prototxt", "--gpu=0", env={**os.environ, "REFCAFFE_DEVICE": "cpu"})
    assert result.returncode == 134
    assert "Cannot use GPU in CPU-only Caffe: check mode." in result.stderr


def test_training_in_gpu_mode_on_the_fake_device(folder):
    result = run("train", "--solver=solver.prototxt", "--gpu=0", env={**os.environ, "REFCAFFE_DEVICE": "fake"})
    assert result.returncode == 0, result.stderr


def test_plots(folder, capsys):
    log = folder / "a.log"
    log.write_text(run("train", "--solver=solver.prototxt").stderr)
    assert main(["plot", str(log), "-o", str(folder / "a.svg")]) == 0
    assert (folder / "a.svg").read_text().count("<svg") == 1
    log.write_text("nothing")
    assert main(["plot", str(log)]) == 1
    assert "nothing to plot" in capsys.readouterr().err


def test_the_parser_reads_original_caffes_lines():
    lines = """I0101 00:00:00.000000  1 solver.cpp:330] Iteration 20, Testing net (#0)
I0101 00:00:00.000000  1 solver.cpp:397]     Test net output #0: accuracy = 0.3
I0101 00:00:00.000000  1 solver.cpp:218] Iteration 20 (9.5 iter/s, 1.05s/10 iters), loss = 1.5408
I0101 00:00:00.000000  1 solver.cpp:237]     Train net output #0: loss = 1.5408 (* 1 = 1.5408 loss)
I0101 00:00:00.000000  1 sgd_solver.cpp:105] Iteration 20, lr = 1e-05""".splitlines()
    log = parse(lines)
    assert log.loss == [(20, 1.5408)]
    assert log.rate == [(20, 1e-5)]
    assert dict(log.scores) == {"accuracy": [(20, 0.3)]}
