"""Net: layers connected by blobs, set up in order, run forward and backward."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.context import Mode
from refcaffe.kernels.blas import clear
from refcaffe.kernels.parallel import calculation
from refcaffe.layers import create
from refcaffe.layers.base import Layer
from refcaffe.net import backward_flags, debug_info, hdf5, weights
from refcaffe.net.filter import filter_net
from refcaffe.net.parameters import Parameters
from refcaffe.net.pycaffe import Callback, PycaffeNet
from refcaffe.net.read import check_file, read_net_in_state
from refcaffe.net.splits import insert_splits
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import to_text
from refcaffe.proto.strings import as_bytes, as_text
from refcaffe.telling import telling

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter

_check = Checker("net.cpp")
_log = logging.getLogger("refcaffe.net.cpp")
_log_pycaffe = logging.getLogger("refcaffe._caffe.cpp")

AUTOMATIC = "(automatic)"  # the name of every blob that a loss layer without a top gets

StrPath = str | os.PathLike[str]


class Net(PycaffeNet):
    """A net, from a NetParameter or, as in pycaffe, from a file: ``Net(file, phase, level=, stages=, weights=)``.

    By layer number: ``all_layers``, ``layer_names``, ``bottoms``, ``tops`` (lists of Blob), ``bottom_ids``,
    ``top_ids``, ``param_ids``, ``layer_need_backward``, ``bottom_need_backward``. By blob number: ``all_blobs``,
    ``blob_names``, ``loss_weights``, ``blob_need_backward``. ``parameters`` knows owners, sharing and multipliers.
    By name, with arrays and with callbacks: see ``PycaffeNet``.

    Raises CheckError with upstream's message for a definition that upstream refuses, RuntimeError for a file that
    cannot be opened; nothing is left running then.
    A net whose data layers have threads ends them when it is closed, dropped, or left as a ``with`` block.
    """

    def __init__(
        self,
        network_file: NetParameter | StrPath,
        phase: int | StrPath | None = None,
        level: int = 0,
        stages: Sequence[str] | None = None,
        weights: StrPath | None = None,
        *,
        dtype: DTypeLike = np.float32,
    ) -> None:
        """``phase`` is TRAIN or TEST; a definition that is no file has its own. ``weights`` is a model file.

        pycaffe's old form ``Net(network_file, weights, phase)`` is understood, and warned about.
        """
        if isinstance(phase, str | os.PathLike):
            weights, phase, level = phase, level, 0
            _warn_old_form(network_file, phase, weights)
        if isinstance(network_file, caffe_pb2.NetParameter):
            param = network_file
        else:
            check_file(network_file)
            if phase is None:
                raise TypeError("Net(network_file, phase): the phase, refcaffe.TRAIN or refcaffe.TEST, is missing")
            param = read_net_in_state(os.fspath(network_file), phase, level, stages or ())
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.all_layers: list[Layer] = []
        self.layer_names: list[str] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self.bottom_ids: list[list[int]] = []
        self.top_ids: list[list[int]] = []
        self.param_ids: list[list[int]] = []
        self.layer_need_backward: list[bool] = []
        self.bottom_need_backward: list[list[bool]] = []
        self.all_blobs: list[Blob] = []
        self.blob_names: list[str] = []
        self.loss_weights: list[float] = []
        self.blob_need_backward: list[bool] = []
        self.parameters = Parameters()
        self.input_ids: list[int] = []
        self.output_ids: list[int] = []
        self.memory_used = 0
        self.before_forward_callbacks: list[Callback] = []
        self.after_forward_callbacks: list[Callback] = []
        self.before_backward_callbacks: list[Callback] = []
        self.after_backward_callbacks: list[Callback] = []
        try:
            self._build(param)
            if weights is not None:
                check_file(weights)
                self.copy_from(weights)
        except BaseException:
            self.close()
            raise

    # --- set-up

    def _build(self, given: NetParameter) -> None:
        self.phase: int = given.state.phase
        filtered = filter_net(given)
        self._info("Initializing net from parameters: \n%s", lambda: to_text(filtered))
        param = insert_splits(filtered)
        self.name: str = as_text(param.name)
        by_name: dict[str, int] = {}
        available: set[str] = set()
        for layer_param in param.layer:
            if not layer_param.HasField("phase"):
                layer_param.phase = self.phase
            with telling(partial(_place, as_text(layer_param.name), layer_param.type, self.name, "set-up")):
                self._add_layer(layer_param, by_name, available)
        backward_flags.prune(self)
        if param.force_backward:
            backward_flags.force(self)
        for name in sorted(available, key=as_bytes):
            self._info("This network produces output %s", name)
            self.output_ids.append(by_name[name])
        self.parameters.share()
        self.debug_info: bool = param.debug_info
        self._info("Network initialization done.")

    def _info(self, text: str, *args: Any) -> None:
        if _log.isEnabledFor(logging.INFO) and context.current().root_solver:
            _log.info(text, *(arg() if callable(arg) else arg for arg in args))

    def _add_layer(self, param: LayerParameter, by_name: dict[str, int], available: set[str]) -> None:
        if len(param.propagate_down):
            text = "propagate_down param must be specified either 0 or bottom_size times "
            expression = "layer_param.propagate_down_size() == layer_param.bottom_size()"
            _check.eq(len(param.propagate_down), len(param.bottom), expression, text)
        layer = create(param, self.dtype)
        self.all_layers.append(layer)
        self.layer_names.append(as_text(param.name))
        self._info("Creating Layer %s", self.layer_names[-1])
        self.bottoms.append([])
        self.tops.append([])
        for per_layer in (self.bottom_ids, self.top_ids, self.param_ids, self.bottom_need_backward):
            per_layer.append([])
        need_backward = False
        for j in range(len(param.bottom)):
            need_backward |= self.blob_need_backward[self._append_bottom(param, j, by_name, available)]
        for j, name in enumerate(map(as_text, param.top)):
            in_place = j < len(param.bottom) and name == as_text(param.bottom[j])
            self._append_top(name, by_name[name] if in_place else None, by_name)
            available.add(name)
            if param.type == "Input":
                self.input_ids.append(len(self.all_blobs) - 1)
        if layer.auto_tops:
            for _ in range(len(param.top), max(layer.min_tops, layer.exact_tops)):
                self._append_top(AUTOMATIC, None, None)
        layer.set_up(self.bottoms[-1], self.tops[-1])
        self._info("Setting up %s", self.layer_names[-1])
        for j, (top, blob) in enumerate(zip(self.tops[-1], self.top_ids[-1], strict=True)):
            self.loss_weights[blob] = layer.loss(j)
            self._info("Top shape: %s", top.shape_string)
            if layer.loss(j):
                self._info("    with loss weight %g", layer.loss(j))
            self.memory_used += top.count
        self._info("Memory required for data: %d", self.memory_used * self.dtype.itemsize)
        need_backward |= self._append_params(layer, param)
        self.layer_need_backward.append(need_backward)
        if need_backward:
            for blob in self.top_ids[-1]:
                self.blob_need_backward[blob] = True

    def _append_bottom(self, param: LayerParameter, j: int, by_name: dict[str, int], available: set[str]) -> int:
        name, layer = as_text(param.bottom[j]), self.layer_names[-1]
        if name not in available:
            _check.fatal(f"Unknown bottom blob '{name}' (layer '{layer}', bottom index {j})")
        blob = by_name[name]
        self._info("%s <- %s", layer, name)
        self.bottoms[-1].append(self.all_blobs[blob])
        self.bottom_ids[-1].append(blob)
        available.remove(name)
        wanted = param.propagate_down[j] if len(param.propagate_down) else self.blob_need_backward[blob]
        self.bottom_need_backward[-1].append(wanted)
        return blob

    def _append_top(self, name: str, in_place: int | None, by_name: dict[str, int] | None) -> None:
        layer = self.layer_names[-1]
        if in_place is not None:
            self._info("%s -> %s (in-place)", layer, name)
            blob = in_place
        else:
            if by_name is not None and name in by_name:
                _check.fatal(f"Top blob '{name}' produced by multiple sources.")
            self._info("%s -> %s", layer, name)
            blob = len(self.all_blobs)
            self.all_blobs.append(Blob(dtype=self.dtype))
            self.blob_names.append(name)
            self.loss_weights.append(0.0)
            self.blob_need_backward.append(False)
            if by_name is not None:
                by_name[name] = blob
        self.tops[-1].append(self.all_blobs[blob])
        self.top_ids[-1].append(blob)

    def _append_params(self, layer: Layer, param: LayerParameter) -> bool:
        """Register the layer's parameters; whether any of them learns, as its definition (not set-up) has it."""
        specs, default = param.param, caffe_pb2.ParamSpec()
        text = f"Too many params specified for layer {self.layer_names[-1]}"
        _check.le(len(specs), len(layer.blobs), "param_size <= num_param_blobs", text)
        learns = False
        for index in range(len(layer.blobs)):
            wanted = (specs[index] if index < len(specs) else default).lr_mult != 0
            layer.set_param_propagate_down(index, wanted)
            learns |= wanted
        for index in range(len(layer.blobs)):
            self.param_ids[-1].append(self.parameters.append(layer, len(self.all_layers) - 1, index, default))
        return learns

    # --- running

    @calculation
    def forward_from_to(self, start: int, end: int) -> Any:
        """Run layers ``start`` ... ``end`` (numbers, both included); returns their loss."""
        _check.ge(start, 0, "start >= 0")
        count = len(self.all_layers)  # a size, which no negative number is below
        _check(0 <= end < count, f"end < layers_.size() ({end} vs. {count})")
        loss = self.dtype.type(0)
        i = start
        with telling(lambda: self._place(i, "forward")):
            for i in range(start, end + 1):
                for callback in self.before_forward_callbacks:
                    callback(i)
                loss += self.all_layers[i].forward(self.bottoms[i], self.tops[i])
                if self.debug_info:
                    debug_info.forward(self, i)
                for callback in self.after_forward_callbacks:
                    callback(i)
        return loss

    @calculation
    def backward_from_to(self, start: int, end: int) -> None:
        """Run layers ``start`` down to ``end`` backward, those that need it."""
        _check.ge(end, 0, "end >= 0")
        count = len(self.all_layers)
        _check(0 <= start < count, f"start < layers_.size() ({start} vs. {count})")
        i = start
        with telling(lambda: self._place(i, "backward")):
            for i in range(start, end - 1, -1):
                for callback in self.before_backward_callbacks:
                    callback(i)
                if self.layer_need_backward[i]:
                    self.all_layers[i].backward(self.tops[i], self.bottom_need_backward[i], self.bottoms[i])
                    if self.debug_info:
                        debug_info.backward(self, i)
                for callback in self.after_backward_callbacks:
                    callback(i)

    def _place(self, i: int, what: str) -> str:
        return _place(self.layer_names[i], self.all_layers[i].type, self.name, what)

    def forward_backward(self) -> Any:
        """One pass forward and backward over all layers; returns the loss."""
        loss = self.forward_from_to(0, len(self.all_layers) - 1)
        self.backward_from_to(len(self.all_layers) - 1, 0)
        if self.debug_info:
            self.parameters.log_norms()
        return loss

    def reshape(self) -> None:
        """Reshape every layer in order, after the shape of an input changed."""
        for i, layer in enumerate(self.all_layers):
            with telling(partial(self._place, i, "reshape")):
                layer.reshape(self.bottoms[i], self.tops[i])

    def clear_param_diffs(self) -> None:
        """Zero the gradient of every learnable parameter, on the side that the mode says."""
        gpu = context.current().mode is Mode.GPU
        for blob in self.parameters.learnable:
            clear(blob.mutable_gpu_diff() if gpu else blob.mutable_cpu_diff())

    def update(self) -> None:
        """data -= diff for every learnable parameter."""
        for blob in self.parameters.learnable:
            blob.update()

    # --- weights

    def copy_from(self, path: StrPath) -> None:
        """Copy parameters from a model file, binary or HDF5 by its contents, into the layers of the same names."""
        weights.copy_from_file(self, os.fspath(path))

    def load_hdf5(self, path: StrPath) -> None:
        """Copy parameters from an HDF5 file into the layers of the same names."""
        hdf5.copy_trained_layers(self, os.fspath(path))

    def share_with(self, other: Net) -> None:
        """Use the other net's parameter data in the layers of the same names."""
        weights.share_trained_layers(self, other)

    def save(self, path: StrPath, write_diff: bool = False) -> None:
        """Write definition and parameters to a binary file (``.caffemodel``)."""
        weights.save(self, os.fspath(path), write_diff)

    def save_hdf5(self, path: StrPath, write_diff: bool = False) -> None:
        """Write the parameters, and their diffs if asked, to an HDF5 file (``.caffemodel.h5``)."""
        hdf5.save(self, os.fspath(path), write_diff)

    def to_proto(self, write_diff: bool = False) -> NetParameter:
        """The net's definition after set-up, with its parameters."""
        return weights.to_proto(self, write_diff)

    # --- the end

    def close(self) -> None:
        """End the threads and close the files of the data layers. The net cannot run afterwards."""
        for layer in self.all_layers:
            layer.close()

    def __enter__(self) -> Net:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _place(layer: str, kind: str, net: str, what: str) -> str:
    return f"layer '{layer}' ({kind}) of net '{net}', {what}"


def _warn_old_form(network_file: Any, phase: int, weights: StrPath) -> None:
    """What pycaffe logs about the old form; both files are looked for before the net is built."""
    _log_pycaffe.warning("DEPRECATION WARNING - deprecated use of Python interface")
    _log_pycaffe.warning('Use this instead (with the named "weights" parameter):')
    _log_pycaffe.warning("Net('%s', %d, weights='%s')", network_file, phase, weights)
    check_file(network_file)
    check_file(weights)
