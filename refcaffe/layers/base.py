"""What a layer is: the contract every layer type fills in, and the registry that finds types by name."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.context import Mode
from refcaffe.device import OUT_OF_MEMORY
from refcaffe.kernels.parallel import calculation
from refcaffe.side import DEVICE, HOST, Side

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter

_check = Checker("layer.hpp")
_check_factory = Checker("layer_factory.hpp")
_log_factory = logging.getLogger("refcaffe.layer_factory.hpp")

Blobs = Sequence[Blob]


class Layer:
    """One layer. A type sets the class attributes and overrides the four methods below ``reshape``.

    ``param`` is the layer's LayerParameter; ``blobs`` are its parameters; ``dtype`` is float32 or float64.
    """

    type: ClassVar[str] = ""

    # How many blobs the layer takes and gives; -1: any number.
    exact_bottoms: int = -1
    min_bottoms: int = -1
    max_bottoms: int = -1
    exact_tops: int = -1
    min_tops: int = -1
    max_tops: int = -1
    equal_bottoms_tops: bool = False
    auto_tops: bool = False  # missing tops are made without a name

    # Whether there is code for a device; without it the host's runs there too.
    forward_on_gpu: ClassVar[bool] = True
    backward_on_gpu: ClassVar[bool] = True

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        # A copy: what set-up changes in it is the layer's own business, and what a net saves.
        self.param = type(param)()
        self.param.CopyFrom(param)
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.phase: int = param.phase
        self.blobs: list[Blob] = []
        self.param_propagate_down: list[bool] = []
        self.loss_weights: list[float] = []
        for proto in param.blobs:
            blob = Blob(dtype=self.dtype)
            blob.from_proto(proto)
            self.blobs.append(blob)

    # --- what a type overrides

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        """Read parameters and make ``blobs``; called once, before the first ``reshape``."""

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """Shape the tops and working memory by the bottoms; called before every forward pass."""
        raise NotImplementedError(f"{type(self).__name__}.reshape")

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        """Compute the tops' data on a side."""
        raise NotImplementedError(f"{type(self).__name__}.forward_at")

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Write the bottoms' diffs (those of ``propagate_down``) and add to the parameters' on a side."""
        raise NotImplementedError(f"{type(self).__name__}.backward_at")

    def allow_force_backward(self, bottom_index: int) -> bool:
        """Whether ``force_backward`` reaches this bottom."""
        return True

    def close(self) -> None:
        """End threads and close files; harmless for a layer that has none, and the second time."""

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        """pycaffe's name of ``layer_set_up``."""
        self.layer_set_up(bottom, top)

    # --- what the net calls

    @np.errstate(all="ignore")  # infinities and not-a-numbers are results, here as in C
    def set_up(self, bottom: Blobs, top: Blobs) -> None:
        """Check the numbers of blobs, set up, shape the tops, and write loss weights into their diffs."""
        self._check_counts(len(bottom), len(top))
        self.layer_set_up(bottom, top)
        self.reshape(bottom, top)
        weights = self.param.loss_weight
        if len(weights):
            text = "loss_weight must be unspecified or specified once per top blob."
            _check.eq(len(top), len(weights), "top.size() == num_loss_weights", text)
            for i, weight in enumerate(weights):
                if weight != 0:
                    self.set_loss(i, weight)
                    top[i].mutable_cpu_diff().fill(weight)

    def loss(self, top_index: int) -> float:
        """The loss weight of a top; 0 if it has none."""
        return self.loss_weights[top_index] if top_index < len(self.loss_weights) else 0.0

    def set_loss(self, top_index: int, weight: float) -> None:
        self.loss_weights += [0.0] * (top_index + 1 - len(self.loss_weights))
        self.loss_weights[top_index] = weight

    def set_param_propagate_down(self, index: int, value: bool) -> None:
        """Say whether parameter ``index`` gets a gradient."""
        self.param_propagate_down += [True] * (index + 1 - len(self.param_propagate_down))
        self.param_propagate_down[index] = value

    def wants_param_diff(self, index: int) -> bool:
        """Whether parameter ``index`` gets a gradient."""
        return index < len(self.param_propagate_down) and self.param_propagate_down[index]

    @calculation
    def forward(self, bottom: Blobs, top: Blobs) -> Any:
        """Reshape, compute the tops, and return the loss: the sum of dot(data, diff) over weighted tops."""
        self.reshape(bottom, top)
        gpu = context.current().mode is Mode.GPU
        try:
            self.forward_at(DEVICE if gpu and self.forward_on_gpu else HOST, bottom, top)
        except MemoryError as error:
            self._out_of_memory(gpu, error)
        loss = self.dtype.type(0)
        side = DEVICE if gpu else HOST
        for weight, blob in zip(self.loss_weights, top, strict=False):
            if weight:
                loss += self.dtype.type(side.host(side.data(blob).reshape(-1) @ side.diff(blob).reshape(-1)))
        return loss

    @calculation
    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """Compute the gradients."""
        gpu = context.current().mode is Mode.GPU and self.backward_on_gpu
        try:
            self.backward_at(DEVICE if gpu else HOST, top, propagate_down, bottom)
        except MemoryError as error:
            self._out_of_memory(gpu, error)

    def _out_of_memory(self, gpu: bool, error: MemoryError) -> NoReturn:
        """Say what a device says that has no memory left for what is computed between two blobs."""
        if gpu:
            raise CheckError(OUT_OF_MEMORY, "syncedmem.cpp") from error
        raise error

    def to_proto(self, proto: LayerParameter, write_diff: bool = False) -> None:
        """Write the layer's definition and parameters."""
        proto.CopyFrom(self.param)
        proto.ClearField("blobs")
        for blob in self.blobs:
            blob.to_proto(proto.blobs.add(), write_diff)

    def _check_counts(self, bottoms: int, tops: int) -> None:
        takes, gives = f"{self.type} Layer takes", f"{self.type} Layer produces"
        one_each = f"{gives} one top blob as output for each bottom blob input."
        n = self.exact_bottoms
        if n >= 0:
            _check.eq(n, bottoms, "ExactNumBottomBlobs() == bottom.size()", f"{takes} {n} bottom blob(s) as input.")
        n = self.min_bottoms
        if n >= 0:
            text = f"{takes} at least {n} bottom blob(s) as input."
            _check.le(n, bottoms, "MinBottomBlobs() <= bottom.size()", text)
        n = self.max_bottoms
        if n >= 0:
            text = f"{takes} at most {n} bottom blob(s) as input."
            _check.ge(n, bottoms, "MaxBottomBlobs() >= bottom.size()", text)
        n = self.exact_tops
        if n >= 0:
            _check.eq(n, tops, "ExactNumTopBlobs() == top.size()", f"{gives} {n} top blob(s) as output.")
        n = self.min_tops
        if n >= 0:
            _check.le(n, tops, "MinTopBlobs() <= top.size()", f"{gives} at least {n} top blob(s) as output.")
        n = self.max_tops
        if n >= 0:
            _check.ge(n, tops, "MaxTopBlobs() >= top.size()", f"{gives} at most {n} top blob(s) as output.")
        if self.equal_bottoms_tops:
            _check.eq(bottoms, tops, "bottom.size() == top.size()", one_each)


class NeuronLayer(Layer):
    """One bottom, one top of its shape; may work in place."""

    exact_bottoms = 1
    exact_tops = 1

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        top[0].reshape_like(bottom[0])


class LossLayer(Layer):
    """Predictions and labels to a scalar, with loss weight 1 unless something else is given."""

    exact_bottoms = 2
    exact_tops = 1
    auto_tops = True

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        if not self.param.loss_weight:
            self.param.loss_weight.append(1)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        text = "The data and label should have the same first dimension."
        expression = "bottom[0]->shape(0) == bottom[1]->shape(0)"
        Checker("loss_layer.cpp").eq(bottom[0].dim(0), bottom[1].dim(0), expression, text)
        top[0].reshape(())

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1


# --- the registry

_registry: dict[str, type[Layer]] = {}
L = TypeVar("L", bound=type[Layer])


def register(name: str) -> Callable[[L], L]:
    """Class decorator: make a layer type known to every net by its Caffe name."""

    def add(cls: L) -> L:
        text = f"Layer type {name} already registered."
        _check_factory.eq(int(name in _registry), 0, "registry.count(type) == 0", text)
        cls.type = name
        _registry[name] = cls
        return cls

    return add


def layer_types() -> list[str]:
    """The names of all known types, sorted."""
    return sorted(_registry)


def create(param: LayerParameter, dtype: DTypeLike = np.float32) -> Layer:
    """A layer of the type that the LayerParameter names, and a log line; see ``make``."""
    if context.current().root_solver:
        _log_factory.info("Creating layer %s", param.name)
    return make(param, dtype)


def make(param: LayerParameter, dtype: DTypeLike = np.float32) -> Layer:
    """A layer of the type that the LayerParameter names; unknown types are refused with the list of known ones."""
    known = param.type in _registry
    text = f"Unknown layer type: {param.type} (known types: {', '.join(layer_types())})"
    _check_factory.eq(int(known), 1, "registry.count(type) == 1", text)
    return _registry[param.type](param, dtype)
