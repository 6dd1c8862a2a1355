"""What a training run shows and leaves behind: events, the progress line, curves, nothing else."""

import itertools
import json
import os
import pty
import subprocess
import sys

import numpy as np
import pytest

from refcaffe.cli.main import main
from refcaffe.cli.training_log import parse
from tests.solvers.test_solver import NET

SOLVER = """
net: "net.prototxt" base_lr: 0.1 lr_policy: "step" gamma: 0.5 stepsize: 2 max_iter: 4 display: 2 average_loss: 3
test_iter: 2 test_interval: 4 snapshot: 3 snapshot_prefix: "s" random_seed: 5
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net.prototxt").write_text(NET)
    (tmp_path / "solver.prototxt").write_text(SOLVER)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def events(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_events_tell_what_the_log_tells(folder, capsys):
    assert main(["train", "--solver=solver.prototxt", "--log-json", "log.json"]) == 0
    found = events(folder / "log.json")
    assert [(event["event"], event["iteration"]) for event in found] == [
        ("start", 0), ("test", 0), ("train", 0), ("train", 2), ("snapshot", 3), ("snapshot", 4), ("train", 4),
        ("test", 4), ("done", 4),
    ]  # fmt: skip
    assert [event["lr"] for event in found if "lr" in event] == [0.1, 0.05]
    assert found[4]["file"] == "s_iter_3.solverstate"
    assert found[3]["outputs"]["loss"] == found[3]["last_loss"]
    assert all(a["time"] <= b["time"] for a, b in itertools.pairwise(found))
    text = parse(capsys.readouterr().err.splitlines())
    own = parse((folder / "log.json").read_text().splitlines())
    for name in ("loss", "rate"):
        np.testing.assert_allclose(getattr(own, name), getattr(text, name), rtol=1e-5)
    np.testing.assert_allclose(own.scores["loss"], text.scores["loss"], rtol=1e-5)


def test_events_of_a_resumed_run_are_appended(folder):
    assert main(["train", "--solver=solver.prototxt", "--log_json=log.json"]) == 0
    with (folder / "log.json").open("a") as file:
        file.write('{"event": "tra')  # as a kill leaves it
    (folder / "solver.prototxt").write_text(SOLVER.replace("max_iter: 4", "max_iter: 6"))
    resume = ["--snapshot=s_iter_3.solverstate", "--log_json=log.json"]
    assert main(["train", "--solver=solver.prototxt", *resume]) == 0
    lines = (folder / "log.json").read_text().splitlines()
    assert lines[9] == '{"event": "tra'
    again = [json.loads(line) for line in lines[10:]]
    assert (again[0]["resumed_from"], again[0]["iteration"], again[-1]["iteration"]) == ("s_iter_3.solverstate", 3, 6)
    assert parse(lines).rate[-1] == (4, pytest.approx(0.025))
    assert main(["train", "--solver=solver.prototxt", "--log_json=log.json"]) == 0
    assert events(folder / "log.json")[-1]["iteration"] == 6


def test_a_log_that_cannot_be_written_is_refused_before_training(folder, capsys):
    assert main(["train", "--solver=solver.prototxt", "--log_json=no/log.json"]) == 134
    assert "--log_json: no/log.json cannot be written" in capsys.readouterr().err
    assert not list(folder.glob("s_iter_*"))


def test_a_run_that_diverges_does_so_quietly(folder):
    net = NET.replace('type: "EuclideanLoss"', 'type: "EuclideanLoss" loss_weight: 1e20')
    (folder / "net.prototxt").write_text(net)
    (folder / "solver.prototxt").write_text(SOLVER + "momentum: 0.9 iter_size: 2")
    words = [sys.executable, "-W", "error", "-m", "refcaffe", "train", "--solver=solver.prototxt", "--log_json=l"]
    result = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 0, result.stderr
    assert "nan" in result.stderr
    assert "Warning" not in result.stderr
    assert events(folder / "l")[-3]["loss"] is None


def on_terminal(*words):
    """Everything that a command writes to a terminal, and what it writes to a pipe as standard output."""
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "refcaffe", *words], stderr=slave, stdout=subprocess.PIPE, env=environment
    )
    os.close(slave)
    shown = b""
    try:
        while data := os.read(master, 1 << 16):
            shown += data
    except OSError:  # how Linux tells that the other end is closed
        pass
    os.close(master)
    out, _ = process.communicate()
    assert process.returncode == 0
    return shown.decode(), out.decode()


def test_a_terminal_gets_a_progress_line_below_whole_log_lines(folder):
    net = NET + 'layer { name: "p" type: "Python" bottom: "ip" top: "p" python_param { module: "noisy" layer: "L" } }'
    (folder / "net.prototxt").write_text(net)
    (folder / "noisy.py").write_text(
        "import caffe\nclass L(caffe.Layer):\n"
        "    def setup(self, b, t): pass\n    def reshape(self, b, t): t[0].reshape(1)\n"
        "    def forward(self, b, t): print('forward')\n    def backward(self, t, p, b): pass\n"
    )
    shown, out = on_terminal("train", "--solver=solver.prototxt")
    assert "training" in shown
    assert "Initializing solver from parameters:" in shown
    # Longer than the terminal is wide, and in one piece.
    assert "Snapshotting solver state to binary proto file s_iter_3.solverstate\r\n" in shown
    assert set(out.split()) == {"forward"}
    piped = subprocess.run(
        [sys.executable, "-m", "refcaffe", "train", "--solver=solver.prototxt"], capture_output=True, text=True,
        timeout=120, check=True,
    )  # fmt: skip
    assert "training" not in piped.stderr.replace("Creating training net", "")


def test_several_runs_in_one_picture(folder, capsys):
    logs = []
    for name in ("a", "b"):
        (folder / name).mkdir()
        assert main(["train", "--solver=solver.prototxt", f"--log_json={name}/log.json"]) == 0
        logs.append(f"{name}/log.json")
    (folder / "text.log").write_text(capsys.readouterr().err)
    assert main(["plot", *logs, "text.log", "-o", "runs.svg"]) == 0
    svg = (folder / "runs.svg").read_text()
    for name in ("a/log.json", "b/log.json", "text", "learning rate"):
        assert f"<!-- {name} -->" in svg
