"""What LSTM and RNN share: a net with one copy of the step's layers for each time step, run as one layer."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.device.room import require
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer
from refcaffe.proto import caffe_pb2
from refcaffe.proto.strings import as_text, put
from refcaffe.side import Side

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter

_check = Checker("recurrent_layer.cpp")
_log = logging.getLogger("refcaffe.recurrent_layer.cpp")

_BYTES_OF_A_STEP = 1 << 16  # of the definition and the layers, whatever the sizes


class Recurrent(Layer, ABC):
    """Bottoms: x (T, N, ...), continuation (T, N), maybe a static input (N, ...). Tops: outputs (T, N, D).

    With ``expose_hidden`` the first states (1, N, D) are bottoms too, the last ones tops; otherwise the last
    states become the first ones of the next forward pass. T is fixed at set-up, N is not. The bottoms' diffs
    are written whatever ``propagate_down`` says, and no gradient leaves the batch.
    """

    backward_on_gpu = False  # the inner net's layers choose for themselves

    letter: ClassVar[str]  # what the gates' inputs are named after: c or h
    gates: ClassVar[int]  # how many times D they are
    states: ClassVar[tuple[str, ...]]  # blobs of the inner net, at the first step
    output: ClassVar[str]

    def __init__(self, param: LayerParameter, dtype: DTypeLike = np.float32) -> None:
        super().__init__(param, dtype)
        self.blobs.clear()
        self.exposed = len(self.states) if param.recurrent_param.expose_hidden else 0
        self.min_bottoms = 2 + self.exposed
        self.max_bottoms = self.min_bottoms + 1
        self.exact_tops = 1 + self.exposed

    @property
    @abstractmethod
    def last_states(self) -> tuple[str, ...]:
        """The blobs of the inner net that hold the states after the last step."""

    @abstractmethod
    def add_step(self, net: NetParameter, t: int) -> None:
        """Add the layers of step ``t`` (from 1), from states and inputs to states and ``<output>_<t>``."""

    def add_end(self, net: NetParameter) -> None:
        """Add what follows the last step, before the outputs are put together."""

    def allow_force_backward(self, bottom_index: int) -> bool:
        return bottom_index != 1

    # --- set-up

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        # A late import: nets are made of layers, but this layer is made of a net.
        from refcaffe.net import Net

        self._check_input(bottom[0])
        self.steps, self.streams = bottom[0].shape[:2]
        text = "Initializing recurrent layer: assuming input batch contains"
        _log.info("%s %d timesteps of %d independent streams.", text, self.steps, self.streams)
        self._check_continuation(bottom[1])
        self.static = len(bottom) > 2 + self.exposed
        if self.static:
            _check.ge(bottom[2].num_axes, 1, "bottom[2]->num_axes() >= 1")
            _check.eq(self.streams, bottom[2].shape[0], "N_ == bottom[2]->shape(0)")
        require(self.steps * _BYTES_OF_A_STEP)
        self.net = net = Net(self._definition(bottom), dtype=self.dtype)
        net.debug_info = self.param.recurrent_param.debug_info
        blobs = net.blobs
        self.inputs = [blobs[name] for name in ("x", "cont", "x_static") if name in blobs]
        self.first = [blobs[name] for name in self.states]
        self.last = [blobs[name] for name in self.last_states]
        self.outputs = blobs[self.output]
        for i, (blob, owner) in enumerate(zip(net.parameters.blobs, net.parameters.owners, strict=True)):
            if owner == -1:
                _log.info("Adding parameter %d: %s", i, net.parameters.display_names[i])
                self.blobs.append(blob)
        for blob in self.last:
            blob.mutable_cpu_diff().fill(0)  # no gradient from the next batch

    def _check_input(self, x: Blob) -> None:
        text = "bottom[0] must have at least 2 axes -- (#timesteps, #streams, ...)"
        _check.ge(x.num_axes, 2, "bottom[0]->num_axes() >= 2", text)

    def _check_continuation(self, cont: Blob) -> None:
        text = "bottom[1] must have exactly 2 axes -- (#timesteps, #streams)"
        _check.eq(cont.num_axes, 2, "bottom[1]->num_axes() == 2", text)
        _check.eq(self.steps, cont.shape[0], "T_ == bottom[1]->shape(0)")
        _check.eq(self.streams, cont.shape[1], "N_ == bottom[1]->shape(1)")

    # --- the inner net

    def _definition(self, bottom: Blobs) -> NetParameter:
        """The inner net; its layers and blobs are named and ordered as upstream's are."""
        self.size = to_int(self.param.recurrent_param.num_output)
        check = Checker(f"{self.type.lower()}_layer.cpp")
        check.gt(self.size, 0, "num_output > 0", "num_output must be positive")
        net = caffe_pb2.NetParameter()
        names = ["x", "cont", "x_static"][: 2 + self.static]
        shapes = [{"dim": blob.shape} for blob in bottom[: len(names)]]
        net.layer.add(type="Input", top=names, input_param={"shape": shapes})
        states = sorted(self.states)
        net.layer.add(type="Input", top=states, input_param={"shape": [{"dim": self._state_shape}]})
        self._add_inputs(net)
        for t in self._times:
            self.add_step(net, t)
        self.add_end(net)
        output, along = self.output, {"axis": 0}
        steps = [f"{output}_{t}" for t in self._times]
        net.layer.add(type="Concat", name=f"{output}_concat", bottom=steps, top=[output], concat_param=along)
        if self.param.name:
            for layer in net.layer:
                put(layer, "name", f"{as_text(self.param.name)}_{layer.name}")
        # Never run: a loss is what makes the net go backward through all that is below it.
        loss = f"{output}_pseudoloss"
        net.layer.add(type="Reduction", name=loss, bottom=[output], top=[loss], loss_weight=[1])
        return net

    @property
    def _times(self) -> range:
        return range(1, self.steps + 1)

    @property
    def _state_shape(self) -> tuple[int, int, int]:
        return (1, self.streams, self.size)

    def product(self, gates: int, axis: int = 2, bias: bool = False) -> dict[str, Any]:
        """The parameters of an inner product to ``gates`` times D numbers per stream."""
        param = self.param.recurrent_param
        fillers = {"weight_filler": param.weight_filler}
        if bias:
            fillers["bias_filler"] = param.bias_filler
        return {"num_output": gates * self.size % 2**32, "bias_term": bias, "axis": axis, **fillers}

    def _add_inputs(self, net: NetParameter) -> None:
        """Cut the continuation into steps; weigh x, all steps at once, and cut it; weigh the static input."""
        weight, x = f"W_x{self.letter}", f"W_x{self.letter}_x"
        self._add_slice(net, "cont_slice", "cont")
        net.layer.add(
            type="InnerProduct",
            name="x_transform",
            bottom=["x"],
            top=[x],
            param=[{"name": weight}, {"name": f"b_{self.letter}"}],
            propagate_down=[True],
            inner_product_param=self.product(self.gates, bias=True),
        )
        if self.static:
            net.layer.add(
                type="InnerProduct",
                name=f"{x}_static",
                bottom=["x_static"],
                top=[f"{x}_static_preshape"],
                param=[{"name": f"{weight}_static"}],
                propagate_down=[True],
                inner_product_param=self.product(self.gates, axis=1),
            )
            net.layer.add(
                type="Reshape",
                name=f"{x}_static_reshape",
                bottom=[f"{x}_static_preshape"],
                top=[f"{x}_static"],
                reshape_param={"shape": {"dim": [1, -1, self.gates * self.size]}},
            )
        self._add_slice(net, f"{x}_slice", x)

    def _add_slice(self, net: NetParameter, name: str, bottom: str) -> None:
        tops = [f"{bottom}_{t}" for t in self._times]
        net.layer.add(type="Slice", name=name, bottom=[bottom], top=tops, slice_param={"axis": 0})

    def add_sum(self, net: NetParameter, t: int, product_name: str, name: str, top: str) -> None:
        """Sum up what goes into the gates: weighted x, weighted h of the step before, the static part."""
        x, weight = f"W_x{self.letter}_x", f"W_h{self.letter}"
        before, weighted = f"h_conted_{t - 1}", f"{weight}_h_{t - 1}"
        bottoms = [f"h_{t - 1}", f"cont_{t}"]
        net.layer.add(type="Scale", name=before, bottom=bottoms, top=[before], scale_param={"axis": 0})
        net.layer.add(
            type="InnerProduct",
            name=product_name,
            bottom=[before],
            top=[weighted],
            param=[{"name": weight}],
            inner_product_param=self.product(self.gates),
        )
        terms = [weighted, f"{x}_{t}"] + [f"{x}_static"] * self.static
        net.layer.add(type="Eltwise", name=name, bottom=terms, top=[top])

    # --- running

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        self._check_input(bottom[0])
        text = "input number of timesteps changed"
        _check.eq(self.steps, bottom[0].shape[0], "T_ == bottom[0]->shape(0)", text)
        self.streams = bottom[0].shape[1]
        self._check_continuation(bottom[1])
        for mine, given in zip(self.inputs, bottom, strict=False):
            mine.reshape_like(given)
        for mine in self.first:
            mine.reshape(self._state_shape)
        self.net.reshape()
        for i, (mine, given) in enumerate(zip(self.inputs, bottom, strict=False)):
            mine.share_data(given)
            if i != 1:
                mine.share_diff(given)
        if self.exposed:
            self._take_states(bottom)
        top[0].reshape_like(self.outputs)
        top[0].share_data(self.outputs)
        top[0].share_diff(self.outputs)
        for given, mine in zip(top[1:], self.last, strict=False):
            given.reshape_like(mine)

    def _take_states(self, bottom: Blobs) -> None:
        for j, mine in enumerate(self.first):
            i = len(self.inputs) + j
            text = (
                f"shape mismatch - recur_input_blobs_[{j}]: {mine.shape_string} "
                f"vs. bottom[{i}]: {bottom[i].shape_string}"
            )
            same = mine.shape == bottom[i].shape
            _check(same, "recur_input_blobs_[j]->shape() == bottom[i]->shape()", text)
            mine.share_data(bottom[i])

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        if self.phase == caffe_pb2.TEST:
            self.net.parameters.share()  # a solver's test net got other parameter memory since set-up
        if not self.exposed:
            for first, last in zip(self.first, self.last, strict=True):
                data = side.data(last)
                side.copy(side.mutable_data(first), data)
        self.net.forward_from_to(0, self._end)
        for given, mine in zip(top[1:], self.last, strict=False):
            given.share_data(mine)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        _check(not propagate_down[1], "!propagate_down[1]", "Cannot backpropagate to sequence indicators.")
        self.net.backward_from_to(self._end, 0)

    @property
    def _end(self) -> int:
        """The number of the last layer that runs, the one before the loss."""
        return len(self.net.layers) - 2
