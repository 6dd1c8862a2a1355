"""Ctrl-C ends a program by SIGINT, wherever it comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")

LAYER = """
import os, signal, threading, time
import caffe

class Dying:
    def __del__(self):
        interrupt()

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def executing():
    def execute():
        for _ in range(300):
            exec("time.sleep(0.001)")

    threading.Thread(target=execute).start()

def careless():
    try:
        interrupt()
    except:
        pass

class Interrupted(caffe.Layer):
    def setup(self, bottom, top):
        exec(self.param_str)

    def reshape(self, bottom, top):
        top[0].reshape(1)

    def forward(self, bottom, top):
        while True:
            time.sleep(0.01)
"""
WAYS = {
    "ordinarily": "interrupt()",
    "while text is executed": "exec('interrupt()')",  # with -m, Python itself looks at what came of it
    "while a thread executes text": "executing(); interrupt()",  # which deletes Python's mark
    "in a callback, where it is lost": "Dying()",
    "where everything is caught": "careless()",
}
PROGRAMS = {
    "python -m": ["-m", "refcaffe"],
    "script": ["-c", "from refcaffe.cli.main import program; program()"],
}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_a_program_as_it_ends_caffes(tmp_path: Path, way: str, program: str) -> None:
    (tmp_path / "layers.py").write_text(LAYER)
    (tmp_path / "net.prototxt").write_text(
        'layer { name: "p" type: "Python" top: "x" python_param { module: "layers" layer: "Interrupted" '
        f'param_str: "{WAYS[way]}" }} }}'
    )
    command = [sys.executable, *PROGRAMS[program], "time", "--model=net.prototxt"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == -signal.SIGINT, ended.stderr
    assert ended.stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in ended.stderr


def test_any_other_error_in_a_callback_is_told() -> None:
    script = (
        "from refcaffe.cli import process\n"
        "class Dying:\n"
        "    def __del__(self): raise ValueError('planted')\n"
        "process.run(lambda words: Dying() and 3)\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 3
    assert "ValueError: planted" in ended.stderr
