"""A net as pycaffe shows it: blobs, parameters and layers by name, passes that take and return arrays, callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from refcaffe.blob import Blob
from refcaffe.layers.base import Layer
from refcaffe.layers.python import Python

Arrays = dict[str, Any]  # by blob name
Callback = Callable[[int], Any]


class PycaffeNet:
    """What ``Net`` has for scripts, over the lists that ``Net`` fills. Names are looked up once and kept."""

    all_layers: list[Layer]
    layer_names: list[str]
    bottom_ids: list[list[int]]
    top_ids: list[list[int]]
    all_blobs: list[Blob]
    blob_names: list[str]
    loss_weights: list[float]
    input_ids: list[int]
    output_ids: list[int]
    before_forward_callbacks: list[Callback]
    after_forward_callbacks: list[Callback]
    before_backward_callbacks: list[Callback]
    after_backward_callbacks: list[Callback]

    def forward_from_to(self, start: int, end: int) -> Any:
        raise NotImplementedError

    def backward_from_to(self, start: int, end: int) -> None:
        raise NotImplementedError

    # --- by name; of several of one name the last

    @cached_property
    def blobs(self) -> dict[str, Blob]:
        """Blobs by name, in the order of their making."""
        return dict(zip(self.blob_names, self.all_blobs, strict=True))

    @cached_property
    def blob_loss_weights(self) -> dict[str, float]:
        """The loss weight of each blob; 0 if it has none."""
        return dict(zip(self.blob_names, self.loss_weights, strict=True))

    @cached_property
    def layers(self) -> list[Any]:
        """The layers in order. A Python layer is the user's own object here."""
        return [layer.instance if isinstance(layer, Python) else layer for layer in self.all_layers]

    @cached_property
    def layer_dict(self) -> dict[str, Any]:
        """Layers by name."""
        return dict(zip(self.layer_names, self.layers, strict=True))

    @cached_property
    def params(self) -> dict[str, list[Blob]]:
        """The parameters of each layer that has any, by layer name."""
        named = zip(self.layer_names, self.all_layers, strict=True)
        return {name: layer.blobs for name, layer in named if layer.blobs}

    @cached_property
    def inputs(self) -> list[str]:
        """Names of the blobs that Input layers give."""
        return self._names(self.input_ids)

    @cached_property
    def outputs(self) -> list[str]:
        """Names of the blobs that no layer reads, sorted."""
        return self._names(self.output_ids)

    @cached_property
    def top_names(self) -> dict[str, list[str]]:
        """The names of each layer's tops, by layer name."""
        return {name: self._names(ids) for name, ids in zip(self.layer_names, self.top_ids, strict=True)}

    @cached_property
    def bottom_names(self) -> dict[str, list[str]]:
        """The names of each layer's bottoms, by layer name."""
        return {name: self._names(ids) for name, ids in zip(self.layer_names, self.bottom_ids, strict=True)}

    def _names(self, ids: list[int]) -> list[str]:
        return [self.blob_names[blob] for blob in ids]

    # --- what pycaffe's own code builds on, and old scripts reach for

    @property
    def _blobs(self) -> list[Blob]:
        return self.all_blobs

    @property
    def _blob_names(self) -> list[str]:
        return self.blob_names

    @property
    def _blob_loss_weights(self) -> list[float]:
        return self.loss_weights

    @property
    def _layer_names(self) -> list[str]:
        return self.layer_names

    @property
    def _inputs(self) -> list[int]:
        return self.input_ids

    @property
    def _outputs(self) -> list[int]:
        return self.output_ids

    def _top_ids(self, layer: int) -> list[int]:
        return self.top_ids[layer]

    def _bottom_ids(self, layer: int) -> list[int]:
        return self.bottom_ids[layer]

    def _forward(self, start: int, end: int) -> float:
        return float(self.forward_from_to(start, end))

    def _backward(self, start: int, end: int) -> None:
        self.backward_from_to(start, end)

    # --- callbacks

    def before_forward(self, function: Callback) -> None:
        """Have ``function(layer number)`` called before each layer's forward pass."""
        self.before_forward_callbacks.append(function)

    def after_forward(self, function: Callback) -> None:
        """Have ``function(layer number)`` called after each layer's forward pass."""
        self.after_forward_callbacks.append(function)

    def before_backward(self, function: Callback) -> None:
        """Have ``function(layer number)`` called before each layer's backward pass, also where that is skipped."""
        self.before_backward_callbacks.append(function)

    def after_backward(self, function: Callback) -> None:
        """Have ``function(layer number)`` called after each layer's backward pass, also where that is skipped."""
        self.after_backward_callbacks.append(function)

    # --- passes

    def forward(
        self, blobs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **inputs: Any
    ) -> Arrays:
        """Run the net, or its layers ``start`` ... ``end`` (names, both included).

        ``inputs`` are arrays for all of the net's inputs, or none. Returns the data of the outputs (with ``end``:
        of that layer's tops) and of ``blobs``, by name: live arrays, which the next pass overwrites.
        """
        first = 0 if start is None else self._layer_id(start)
        last = len(self.all_layers) - 1 if end is None else self._layer_id(end)
        names = self.outputs if end is None else self.top_names[end]
        if inputs:
            if set(inputs) != set(self.inputs):
                raise ValueError("Input blob arguments do not match net inputs.")
            self._fill("data", inputs, "Input is not batch sized")
        self.forward_from_to(first, last)
        return {name: self.blobs[name].data for name in {*names, *(blobs or ())}}

    def backward(
        self, diffs: Sequence[str] | None = None, start: str | None = None, end: str | None = None, **top_diffs: Any
    ) -> Arrays:
        """Run the net backward, from layer ``start`` down to ``end``.

        ``top_diffs`` are arrays for the diffs of all outputs, or none. Returns the diffs of the inputs (with ``end``:
        of that layer's bottoms) and of ``diffs``, by name.
        """
        first = len(self.all_layers) - 1 if start is None else self._layer_id(start)
        last = 0 if end is None else self._layer_id(end)
        names = self.inputs if end is None else self.bottom_names[end]
        if top_diffs:
            if set(top_diffs) != set(self.outputs):
                raise ValueError("Top diff arguments do not match net outputs.")
            self._fill("diff", top_diffs, "Diff is not batch sized")
        self.backward_from_to(first, last)
        return {name: self.blobs[name].diff for name in {*names, *(diffs or ())}}

    def _layer_id(self, name: str) -> int:
        if name not in self.layer_names:
            raise ValueError(f"{name!r} is not a layer of the net; these are: {', '.join(self.layer_names)}")
        return self.layer_names.index(name)

    def _fill(self, which: str, arrays: Arrays, not_batch_sized: str) -> None:
        for name, array in arrays.items():
            if array.shape[0] != self.blobs[name].shape[0]:
                raise ValueError(not_batch_sized)
            getattr(self.blobs[name], which)[...] = array

    # --- passes in batches

    def forward_all(self, blobs: Sequence[str] | None = None, **inputs: Any) -> Arrays:
        """Run ``forward`` over arrays of any length, batch by batch.

        The last batch is filled up with zeros. Returns arrays of one row per row of the inputs.
        """
        parts: dict[str, list[Any]] = {name: [] for name in {*self.outputs, *(blobs or ())}}
        for batch in self._batches(inputs):
            _collect(parts, self.forward(blobs=blobs, **batch))
        return _joined(parts, _rows(inputs))

    def forward_backward_all(
        self, blobs: Sequence[str] | None = None, diffs: Sequence[str] | None = None, **arrays: Any
    ) -> tuple[Arrays, Arrays]:
        """Run ``forward`` and ``backward`` batch by batch: ``arrays`` are data of inputs and diffs of outputs.

        What is not given stays as it is in the net. Returns (data by blob name, diffs by blob name).
        """
        data: dict[str, list[Any]] = {name: [] for name in {*self.outputs, *(blobs or ())}}
        gradients: dict[str, list[Any]] = {name: [] for name in {*self.inputs, *(diffs or ())}}
        batches = list(self._batches(arrays))
        for batch in batches:
            _collect(data, self.forward(blobs=blobs, **{name: batch[name] for name in self.inputs if name in batch}))
            given = {name: batch[name] for name in self.outputs if name in batch}
            _collect(gradients, self.backward(diffs=diffs, **given))
        rows = _rows(arrays)
        return _joined(data, rows), _joined(gradients, rows)

    def _batches(self, arrays: Arrays) -> Iterator[Arrays]:
        """The arrays in pieces of the net's batch size, which is the first dimension of its first blob."""
        size, rows = self.all_blobs[0].shape[0], _rows(arrays)
        for begin in range(0, rows - rows % size, size):
            yield {name: array[begin : begin + size] for name, array in arrays.items()}
        if rows % size:
            yield {name: _filled_up(array[-(rows % size) :], size) for name, array in arrays.items()}

    def set_input_arrays(self, data: np.ndarray, labels: np.ndarray) -> None:
        """Have the net's MemoryData layer, which must be its first, read these arrays.

        ``data`` is (n, channels, height, width), ``labels`` (n,) or (n, 1, 1, 1), both C-contiguous float32; n is a
        multiple of the layer's batch size. RuntimeError otherwise.
        """
        if labels.ndim == 1:
            labels = np.ascontiguousarray(labels[:, None, None, None])
        layer: Any = self.all_layers[0]
        if layer.type != "MemoryData":
            raise RuntimeError("set_input_arrays may only be called if the first layer is a MemoryDataLayer")
        _check_input(data, "data array", (layer.channels, layer.height, layer.width))
        _check_input(labels, "labels array", (1, 1, 1))
        if len(data) != len(labels):
            raise RuntimeError("data and labels must have the same first dimension")
        if len(data) % layer.batch_size:
            raise RuntimeError("first dimensions of input arrays must be a multiple of batch size")
        layer.reset(data, labels)


def _rows(arrays: Arrays) -> int:
    if not arrays:
        raise ValueError("there is no array to tell the number of rows")
    return len(next(iter(arrays.values())))


def _filled_up(array: Any, size: int) -> Any:
    return np.concatenate([array, np.zeros((size - len(array), *array.shape[1:]))])


def _collect(parts: dict[str, list[Any]], arrays: Arrays) -> None:
    for name, array in arrays.items():
        parts[name].append(array.copy())


def _joined(parts: dict[str, list[Any]], rows: int) -> Arrays:
    """The batches of each blob as one array, without what stands for the zeros of the last batch.

    How many rows those are is told by the first blob, as upstream does it.
    """
    arrays = {name: np.concatenate(batches) if batches else np.empty(0) for name, batches in parts.items()}
    padding = len(next(iter(arrays.values()))) - rows if arrays else 0
    return {name: array[: len(array) - padding] for name, array in arrays.items()}


def _check_input(array: np.ndarray, name: str, shape: tuple[int, int, int]) -> None:
    if not array.flags.c_contiguous:
        raise RuntimeError(f"{name} must be C contiguous")
    if array.ndim != 4:
        raise RuntimeError(f"{name} must be 4-d")
    if array.dtype != np.float32:
        raise RuntimeError(f"{name} must be float32")
    for what, has, wanted in zip(("number of channels", "height", "width"), array.shape[1:], shape, strict=True):
        if has != wanted:
            raise RuntimeError(f"{name} has wrong {what}")
