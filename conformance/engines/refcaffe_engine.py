"""refcaffe as an engine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import refcaffe
from conformance.cases import Case, Recording
from conformance.engines.base import Engine, EngineError
from conformance.engines.gpumode import GpuWorld
from conformance.engines.refcaffe_gpumode import RefcaffeGpuWorld
from conformance.engines.refcaffe_memories import RefcaffeMemories
from conformance.engines.refcaffe_nets import RefcaffePycaffe, missing_feature
from conformance.engines.refcaffe_pipeline import RefcaffePipeline
from conformance.processes import Programs
from refcaffe import context, device
from refcaffe.checks import CheckError
from refcaffe.context import Mode
from refcaffe.watch import Watch

# upstream (a key of provenance.json) -> reader era, DEBUG, compiled with its GPU code
_BUILDS = {
    "bvlc-1.0-cpu": (False, False, False),
    "bvlc-datareader-cpu": (True, False, False),
    "bvlc-1.0-fakecuda": (False, False, True),
    "bvlc-1.0-fakecuda-debug": (False, True, True),
    "bvlc-datareader-fakecuda": (True, False, True),
    "bvlc-1.0-hostcuda": (False, False, True),
}


def _build(upstream: str) -> tuple[bool, bool, bool]:
    """What is known of a Caffe; a user's own is taken for a 1.0 without GPU code."""
    return _BUILDS.get(upstream, _BUILDS["bvlc-1.0-cpu"])


class RefcaffeEngine(Engine):
    """refcaffe on the host, a fake device or a CUDA device. Raises EngineError if the device is not there."""

    name = "refcaffe"
    Fatal = CheckError

    def __init__(self, device_name: str = "cpu") -> None:
        self.device = device_name
        try:
            self.runtime = device.make(device_name)
        except CheckError as error:
            raise EngineError(str(error)) from error

    def describe(self) -> dict[str, str]:
        versions = {name: metadata.version(name) for name in ("numpy", "protobuf")}
        return {
            "engine": self.name,
            "refcaffe": _version(),
            "device": self.device,
            "python": platform.python_version(),
            **versions,
            "machine": f"{platform.system()} {platform.machine()}",
        }

    def recording(self, case: Case, play: Callable[[Case, Engine], Recording]) -> Recording:
        here = context.current()
        before = here.mode, here.device
        try:
            with device.use(self.runtime):
                return play(case, self)
        finally:
            here.mode, here.device = before

    def stream(self, seed: int) -> Any:
        from refcaffe.rng import Stream

        return Stream(seed)

    def nextafter(self, x: Any) -> Any:
        from refcaffe import rng

        return rng.nextafter(x)

    def message(self, name: str, text: str) -> Any:
        from google.protobuf import text_format

        from refcaffe.proto import caffe_pb2

        return text_format.Parse(text, getattr(caffe_pb2, name)())

    @contextmanager
    def memories(self, upstream: str, mode: str, device_number: int) -> Iterator[RefcaffeMemories]:
        reader_era, debug, gpu = _build(upstream)
        runtime: Any = device.HostRuntime()
        if gpu:
            runtime = device.make("cuda") if self.device == "cuda" else device.FakeRuntime(devices=4)
        here = context.current()
        with device.use(runtime), context.build(reader_era=reader_era, debug=debug):
            here.mode, here.device = Mode[mode], 0
            world = RefcaffeMemories(runtime)
            world.set_device(device_number)
            try:
                yield world
            finally:
                runtime.record = None  # what goes with the world is nobody's event
                world.set_device(device_number)

    @contextmanager
    def pycaffe(self, upstream: str, mode: str) -> Iterator[RefcaffePycaffe]:
        reader_era, debug, _ = _build(upstream)
        with context.build(reader_era=reader_era, debug=debug), RefcaffePycaffe() as caffe:
            context.current().mode = self._mode(mode)
            yield caffe

    def _mode(self, recorded: str) -> Mode:
        """Where there is a device, everything runs there: what cases recorded on the host have as well."""
        return Mode.GPU if self.runtime.has_gpu else Mode[recorded]

    @contextmanager
    def pipeline(self, upstream: str, mode: str) -> Iterator[RefcaffePipeline]:
        reader_era, debug, _ = _build(upstream)
        here = context.current()
        before = here.solver_count, here.solver_rank
        with context.build(reader_era=reader_era, debug=debug), RefcaffePipeline() as caffe:
            here.mode = self._mode(mode)
            try:
                yield caffe
            finally:
                here.solver_count, here.solver_rank = before

    @contextmanager
    def gpumode(self, upstream: str) -> Iterator[GpuWorld]:
        reader_era, debug, _ = _build(upstream)
        runtime = device.make("cuda" if self.device == "cuda" else "fake")
        here = context.current()
        with device.use(runtime), context.build(reader_era=reader_era, debug=debug), RefcaffePycaffe():
            here.mode, here.device = Mode.GPU, 0
            try:
                with Watch(runtime) as watch:
                    yield RefcaffeGpuWorld(runtime, watch)
            finally:
                here.lose_generator()

    def programs(self, upstream: str) -> Programs:
        reader_era, _, gpu = _build(upstream)
        uses = "cpu" if not gpu else "cuda" if self.device == "cuda" else "fake"
        paths = [str(Path(refcaffe.__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
        environment = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "REFCAFFE_DEVICE": uses,
            "REFCAFFE_READER_ERA": "1" if reader_era else "",
        }
        return Programs("refcaffe", refcaffe.__version__, _command, environment)

    def not_yet(self, message: str) -> str | None:
        return missing_feature(message)


def _command(program: str, arguments: Sequence[str]) -> list[str]:
    """Caffe's programs are commands of refcaffe; ``caffe`` is refcaffe itself."""
    return [sys.executable, "-m", "refcaffe", *([] if program == "caffe" else [program]), *arguments]


def _version() -> str:
    try:
        return metadata.version("refcaffe")
    except metadata.PackageNotFoundError:
        return "not installed"
