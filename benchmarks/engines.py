"""Who is measured: refcaffe, and whoever else is there. Each runs in a process of its own and tells its times."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import nets
from benchmarks.peers.timing import LEAST
from refcaffe.kernels.parallel import num_threads
from refcaffe.proto.io import write_text

HERE = Path(__file__).parent


class Missing(Exception):
    """An engine is not there, or cannot run this net; says why."""


class Process:
    """A program that answers every line with seconds."""

    def __init__(self, command: list[str], first: dict[str, Any]) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, cwd=HERE.parent)
        self._say(json.dumps(first))

    def _say(self, line: str) -> None:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self._fail()

    def _fail(self) -> None:
        assert self._process.stderr is not None
        words = self._process.stderr.read().strip().splitlines() or ["it ended"]
        raise Missing(words[-1])

    def seconds(self, what: str) -> float:
        """How long one pass takes."""
        self._say(what)
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            self._fail()
        return float(answer)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class CaffeTime:
    """A ``caffe`` program of any Caffe, by its own ``time`` command. Its inputs are zeros, which only helps it."""

    def __init__(self, program: str, name: str, batch: int | None) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._model = Path(self._folder.name) / "net.prototxt"
        write_text(nets.definition(name, batch), str(self._model))
        self._program = program
        self._times: dict[str, float] = {}

    def seconds(self, what: str) -> float:
        """The mean of at least two passes, from one start of the program for both kinds."""
        if what not in self._times:
            times = self._run(2)
            if times["both"] < LEAST / 2:
                times = self._run(int(LEAST / times["both"]))
            self._times = times
        return self._times.pop(what)

    def _run(self, iterations: int) -> dict[str, float]:
        words = [self._program, "time", f"-model={self._model}", f"-iterations={iterations}", "-phase=TRAIN"]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(num_threads())}
        log = subprocess.run(words, capture_output=True, text=True, env=environment, check=False).stderr
        found = [re.search(rf"Average {name}[a-z -]*: ([\d.]+) ms", log) for name in ("Forward p", "Backward p")]
        if not all(found):
            raise Missing((log.strip().splitlines() or ["it said nothing"])[-1])
        forward, backward = (float(match[1]) / 1000 for match in found if match)
        return {"forward": forward, "both": forward + backward}

    def close(self) -> None:
        self._folder.cleanup()


def refcaffe_engine(name: str, batch: int | None) -> Process:
    return Process([sys.executable, "-m", "benchmarks.serve"], {"name": name, "batch": batch})


def torch_engine(name: str, batch: int | None) -> Process:
    python = python_with("torch")
    first = {"layers": nets.layer_list(nets.load(name, batch)), "threads": num_threads()}
    return Process([python, str(HERE / "peers" / "torch_net.py")], first)


def opencv_engine(name: str, batch: int | None) -> Process:
    """Without labels and losses, which it doesn't know."""
    python = python_with("cv2.dnn", "readNetFromCaffe")
    folder = Path(tempfile.mkdtemp(prefix="refcaffe-benchmark-"))
    net = nets.load(name, batch)
    net.save(str(folder / "net.caffemodel"))
    param = nets.definition(name, batch)
    kept = [layer for layer in param.layer if "label" not in [*layer.bottom, *layer.top]]
    del param.layer[:]
    param.layer.extend(kept)
    write_text(param, str(folder / "net.prototxt"))
    files = {"prototxt": str(folder / "net.prototxt"), "caffemodel": str(folder / "net.caffemodel")}
    first = {**files, "shape": list(net.blobs["data"].shape), "threads": num_threads()}
    process = Process([python, str(HERE / "peers" / "opencv_net.py")], first)
    try:
        process.seconds("forward")
    finally:
        shutil.rmtree(folder)
    return process


def caffe_engine(name: str, batch: int | None) -> CaffeTime:
    program = os.environ.get("REFCAFFE_BENCHMARK_CAFFE") or shutil.which("caffe")
    if not program:
        raise Missing("no caffe program; name one in REFCAFFE_BENCHMARK_CAFFE")
    return CaffeTime(program, name, batch)


def python_with(module: str, attribute: str = "__name__") -> str:
    """This Python or the one that REFCAFFE_BENCHMARK_PYTHON names, whichever has a module with an attribute."""
    for python in (os.environ.get("REFCAFFE_BENCHMARK_PYTHON"), sys.executable):
        code = f"import {module} as module; module.{attribute}"
        if python and subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0:
            return python
    raise Missing(f"no {module}; name a Python that has it in REFCAFFE_BENCHMARK_PYTHON")


FORWARD_ONLY = {"OpenCV"}
ENGINES = {
    "refcaffe": refcaffe_engine,
    "Caffe": caffe_engine,
    "PyTorch": torch_engine,
    "OpenCV": opencv_engine,
}
