"""An installed original Caffe as an engine, through the recording programs (``conformance/record/cpp``) and its tools.

It carries out the kinds that pycaffe does not reach; those that it reaches are recorded by ``record_pycaffe.py``.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from conformance.engines.base import Engine, EngineError
from conformance.engines.original_memories import OriginalMemories
from conformance.engines.original_pipeline import OriginalPipeline
from conformance.outcome import Unsupported
from conformance.processes import Programs, read_stderr

_CPU_BUILDS = "-cpu"  # how provenance.json's keys of Caffes without GPU code end
_TYPES = {"float32": "float", "float64": "double", "int32": "int", "uint32": "uint"}


class OriginalFatal(Exception):
    """The program ended as original Caffe does: by a failed check, or a crash (then there is no ``file``)."""

    def __init__(self, message: str, file: str = "") -> None:
        super().__init__(message)
        self.message, self.file = message, file


class Process:
    """A recording program: each line that it is sent is answered by one."""

    def __init__(self, program: Path) -> None:
        if not program.is_file():
            raise EngineError(f"{program}: no such program; conformance/record/cpp/CMakeLists.txt builds it")
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([program.resolve()], stdin=pipe, stdout=pipe, stderr=self._stderr, text=True)
        self.parting = ""
        """What the program said as a check failed."""

    @property
    def is_open(self) -> bool:
        return not self._stderr.closed

    def ask(self, *words: Any) -> str:
        """Send words, return the answer. Raises OriginalFatal where the program ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(" ".join(map(str, words)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        answer = self._process.stdout.readline()
        if answer and not answer.startswith("!"):
            return answer
        self.parting = answer[1:]
        raise self._ended()

    def _ended(self) -> OriginalFatal:
        status = self._process.wait()
        for level, file, text in reversed(self.log()):
            if level == "F":
                return OriginalFatal(text, file)
        return OriginalFatal(f"ended with status {status} and no word")

    def log(self) -> list[list[str]]:
        """``[level, file, text]`` of the lines logged so far."""
        self._stderr.seek(0)
        return read_stderr(self._stderr.read().decode("utf-8", "replace").splitlines())["log"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._stderr.close()


class OriginalEngine(Engine):
    """``programs``: folder of the recording programs; ``tools``: folder of Caffe's own programs."""

    name = "caffe"
    Fatal = OriginalFatal

    def __init__(self, programs: Path | None = None, tools: Path | None = None, version: str = "1.0.0") -> None:
        # Absolute, since the programs are started in folders of their own.
        self._programs = programs.resolve() if programs else None
        self._tools = tools.resolve() if tools else None
        self._version = version
        self._numbers: Process | None = None  # which asks nothing of a stream, and so is kept

    def start(self, program: str) -> Process:
        """Start a recording program. Raises Unsupported if their folder was not given."""
        if self._programs is None:
            raise Unsupported("the recording programs (conformance/record/cpp), whose folder is given by --programs")
        return Process(self._programs / f"record_{program}")

    def stream(self, seed: int) -> OriginalStream:
        return OriginalStream(self.start("rng"), seed)

    def nextafter(self, x: Any) -> Any:
        if self._numbers is None:
            self._numbers = self.start("rng")
            self._numbers.ask("seed", 0)
        answer = self._numbers.ask("nextafter", _TYPES[x.dtype.name], x.tobytes().hex())
        return np.frombuffer(bytes.fromhex(answer.split()[2]), x.dtype)[0]

    def __del__(self) -> None:
        if self._numbers is not None:
            self._numbers.close()

    def message(self, name: str, text: str) -> Any:
        from google.protobuf import text_format

        from refcaffe.proto import caffe_pb2

        return text_format.Parse(text, getattr(caffe_pb2, name)())

    @contextmanager
    def memories(self, upstream: str, mode: str, device: int) -> Iterator[OriginalMemories]:
        if not upstream.endswith(_CPU_BUILDS):
            raise Unsupported(f"a Caffe such as {upstream}, with GPU code: the programs watch host memory only")
        process = self.start("memories")
        try:
            yield OriginalMemories(process, mode)
        finally:
            process.close()

    @contextmanager
    def pipeline(self, upstream: str, mode: str) -> Iterator[Any]:
        pipeline = OriginalPipeline(lambda: self.start("transform"))
        try:
            yield pipeline
        finally:
            pipeline.close()

    def programs(self, upstream: str) -> Programs:
        if self._tools is None:
            raise Unsupported("Caffe's own programs, whose folder is given by --tools")
        tools = self._tools

        def command(program: str, arguments: Sequence[str]) -> list[str]:
            for name in (program, f"{program}.bin"):
                if (tools / name).is_file():
                    return [str(tools.resolve() / name), *arguments]
            raise Unsupported(f"the program {program}, which is not in {tools}")

        limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "GLOG_logtostderr": "1"}
        return Programs(
            "caffe", self._version, command, {key: os.environ.get(key, value) for key, value in limits.items()}
        )


class OriginalStream:
    """A random stream of the original's, with the methods of ``refcaffe.rng.Stream``."""

    def __init__(self, process: Process, seed: int) -> None:
        self._process = process
        self.draws = 0
        self._ask("seed", seed)

    def _ask(self, *words: Any) -> bytes:
        drawn, following, values = self._process.ask(*words).split()
        self.draws += int(drawn)
        self._next = int(following)
        return b"" if values == "-" else bytes.fromhex(values)

    def __del__(self) -> None:
        self._process.close()

    def peek(self) -> int:
        return self._next

    def raws(self, n: int) -> np.ndarray:
        return np.frombuffer(self._ask("rand", n), np.uint32)

    def skip(self, n: int) -> None:
        self._ask("skip", n)

    def _fill(self, call: str, n: int, numbers: Sequence[Any], out: np.ndarray | None) -> None:
        if out is None:
            self._ask("null", call)
            return
        kinds = (
            [_TYPES[out.dtype.name], _TYPES[numbers[0].dtype.name]] if call == "bernoulli" else [_TYPES[out.dtype.name]]
        )
        values = np.frombuffer(self._ask(call, *kinds, *(x.tobytes().hex() for x in numbers), n), out.dtype)
        out[: values.size] = values

    def uniform(self, n: int, a: Any, b: Any, out: np.ndarray | None) -> None:
        self._fill("uniform", n, (a, b), out)

    def gaussian(self, n: int, mu: Any, sigma: Any, out: np.ndarray | None) -> None:
        self._fill("gaussian", n, (mu, sigma), out)

    def bernoulli(self, n: int, p: Any, out: np.ndarray | None) -> None:
        self._fill("bernoulli", n, (p,), out)

    def shuffle(self, values: np.ndarray) -> None:
        """Of 0, 1, … in this order."""
        values[:] = np.frombuffer(self._ask("shuffle", len(values)), np.int32)

    def sub_stream(self) -> _SubStream:
        return _SubStream(self)


class _SubStream:
    """A stream seeded by a word of another, of which so many words are asked once."""

    def __init__(self, parent: OriginalStream) -> None:
        self._parent = parent

    def raws(self, n: int) -> np.ndarray:
        return np.frombuffer(self._parent._ask("sub_rng", n), np.uint32)
