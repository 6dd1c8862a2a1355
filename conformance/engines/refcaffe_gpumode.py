"""Layers, nets and solvers of refcaffe in GPU mode, with names for every block of memory that is copied."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from google.protobuf import text_format

import refcaffe
from conformance.engines.gpumode import Copy, Parts, SolverPart
from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.context import Mode
from refcaffe.device import Memory, Runtime
from refcaffe.layers import create
from refcaffe.proto import caffe_pb2
from refcaffe.syncedmem import Head
from refcaffe.watch import Watch, heads

_PATIENCE = 30.0  # seconds for a prefetch thread to fill its batches


class _Given:
    """A device's generator that gives the numbers of a recording, and zeros when they are used up."""

    def __init__(self, world: RefcaffeGpuWorld) -> None:
        self._world = world

    def seed(self, seed: int) -> None:
        """The numbers are what they are."""

    def words(self, out: Any) -> None:
        self._give(out)

    def uniform(self, out: Any) -> None:
        self._give(out)

    def _give(self, out: Any) -> None:
        world = self._world
        world.drawn.append([str(out.dtype), int(out.size)])
        draw = world.draws.pop(0) if world.draws else np.empty(0)
        fits = draw.size == out.size and draw.dtype == out.dtype
        out[...] = world.runtime.xp.asarray(draw if fits else np.zeros(out.size, out.dtype))


class RefcaffeLayer:
    """``conformance.engines.gpumode.LayerPart``."""

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self.type = layer.type
        self.falls_back = {"forward": not layer.forward_on_gpu, "backward": not layer.backward_on_gpu}

    @property
    def params(self) -> Sequence[Blob]:
        return self._layer.blobs

    def __getattr__(self, name: str) -> Any:  # set_up, reset, forward, backward, close
        return getattr(self._layer, name)

    def has_loss(self, tops: int) -> bool:
        return any(self._layer.loss(i) for i in range(tops))


class RefcaffeParts:
    """``conformance.engines.gpumode.Parts`` on a refcaffe net."""

    def __init__(self, net: Any) -> None:
        self._net = net
        self.layers = [[name, layer.type] for name, layer in zip(net.layer_names, net.all_layers)]
        self.need_backward = [name for name, need in zip(net.layer_names, net.layer_need_backward) if need]

    @property
    def blobs(self) -> Mapping[str, Blob]:
        return dict(zip(self._net.blob_names, self._net.all_blobs))

    @property
    def params(self) -> Mapping[str, Blob]:
        return {name: blob for i in range(len(self.layers)) for name, blob in self._params(i)}

    def _params(self, index: int) -> Iterable[tuple[str, Blob]]:
        name = self._net.layer_names[index]
        return ((f"{name}[{i}]", blob) for i, blob in enumerate(self._net.all_layers[index].blobs))

    def of_layer(self, index: int) -> Mapping[str, Blob]:
        ids = [*self._net.bottom_ids[index], *self._net.top_ids[index]]
        return {self._net.blob_names[i]: self._net.all_blobs[i] for i in ids} | dict(self._params(index))

    def forward(self, index: int) -> float:
        return float(self._net.forward_from_to(index, index))

    def backward(self, index: int) -> None:
        self._net.backward_from_to(index, index)

    def read_python(self, blob: str) -> None:
        _ = self._net.blobs[blob].data

    def clear_param_diffs(self) -> None:
        self._net.clear_param_diffs()

    def close(self) -> None:
        self._net.close()


class RefcaffeSteps:
    """``conformance.engines.gpumode.SolverPart`` on a refcaffe solver."""

    def __init__(self, solver: Any) -> None:
        self._solver = solver
        self.net: Parts = RefcaffeParts(solver.net)
        self.test_nets: Sequence[Parts] = [RefcaffeParts(net) for net in solver.test_nets]

    @property
    def history(self) -> Sequence[Any]:
        history: Sequence[Any] = self._solver.history
        return history

    def step(self, on_start: Callable[[], None], on_gradients_ready: Callable[[], None]) -> None:
        self._solver.callbacks[:] = [(on_start, on_gradients_ready)]
        self._solver.step(1)

    def snapshot(self) -> None:
        self._solver.snapshot()

    def restore(self, file: str) -> None:
        self._solver.restore(file)

    def close(self) -> None:
        self._solver.close()


class RefcaffeGpuWorld:
    """``conformance.engines.gpumode.GpuWorld`` on a runtime that nobody else uses."""

    def __init__(self, runtime: Runtime, watch: Watch) -> None:
        self.runtime = runtime
        self.draws: list[np.ndarray] = []
        self.drawn: list[list[Any]] = []
        self._watch = watch
        self._prefetchers: list[Any] = []
        self._kept: list[Any] = []  # the caller's memory lives as long as the world
        context.current().lose_generator()
        runtime.make_generator = lambda: _Given(self)

    # --- making things

    def set_mode(self, mode: str) -> None:
        context.current().mode = Mode[mode]

    def set_random_seed(self, seed: int) -> None:
        context.current().set_random_seed(seed)

    def blob(self, shape: Sequence[int] | None) -> Blob:
        return Blob(shape)

    def blob_proto(self) -> Any:
        return caffe_pb2.BlobProto()

    def layer(self, text: str, phase: str) -> RefcaffeLayer:
        param = text_format.Parse(text, caffe_pb2.LayerParameter())
        param.phase = caffe_pb2.Phase.Value(phase)
        layer = create(param)
        self._prefetchers += [layer.prefetcher] if hasattr(layer, "prefetcher") else []
        return RefcaffeLayer(layer)

    def net(self, file: str, phase: str) -> RefcaffeParts:
        return RefcaffeParts(self._of(refcaffe.Net(file, caffe_pb2.Phase.Value(phase))))

    def solver(self, file: str) -> SolverPart:
        solver = refcaffe.get_solver(file)
        for net in [solver.net, *solver.test_nets]:
            self._of(net)
        return RefcaffeSteps(solver)

    def _of(self, net: Any) -> Any:
        self._prefetchers += [layer.prefetcher for layer in net.all_layers if hasattr(layer, "prefetcher")]
        return net

    def external(self, side: str, values: Any) -> Memory:
        array = np.array(values, np.float32)
        on_device = side == "gpu"
        memory = Memory.of(self.runtime.xp.asarray(array) if on_device else array, on_device)
        self._kept.append(memory)
        return memory

    # --- memory

    def async_push(self, blob: Blob) -> None:
        stream = self.runtime.new_stream()
        blob.data_memory().async_gpu_push(stream)
        stream.synchronize()

    def write(self, blob: Blob, which: str, side: str, array: np.ndarray) -> None:
        target = getattr(blob, f"mutable_{side}_{which}")()
        target[...] = self.runtime.xp.asarray(array) if side == "gpu" else array

    def clear_on_device(self, blob: Blob) -> None:
        blob.mutable_gpu_diff().fill(0)

    def heads(self, blob: Blob) -> str:
        return heads(blob)

    def contents(self, blob: Blob, which: str) -> np.ndarray | None:
        memory = blob.memories[which == "diff"]
        if memory is None or memory.head is Head.UNINITIALIZED:
            return None
        held = memory.sides[memory.head is Head.HEAD_AT_GPU]
        data = np.empty(0, np.uint8) if held is None else held.array
        data = data.get() if hasattr(data, "get") else data.copy()
        return data.view(blob.dtype)[: blob.count].reshape(blob.shape)

    # --- copies

    def watch(self, named: Mapping[str, Blob]) -> None:
        self._watch.name(named)

    def settle(self) -> None:
        end = time.monotonic() + _PATIENCE
        for prefetcher in self._prefetchers:
            while prefetcher.error is None and not prefetcher.idle:
                if time.monotonic() > end:
                    raise TimeoutError(f"prefetch thread of layer '{prefetcher.name}' is not done")
                time.sleep(0.001)

    def take_copies(self) -> tuple[list[Copy], list[Copy]]:
        own: list[Copy] = []
        prefetched: list[Copy] = []
        for copy in self._watch.take_copies():
            mark = ["async"] if copy.asynchronous else []
            if copy.prefetch:
                prefetched.append([copy.direction, copy.nbytes, *mark])
            else:
                own.append([copy.direction, copy.nbytes, *copy.ends, *mark])
        return own, prefetched
