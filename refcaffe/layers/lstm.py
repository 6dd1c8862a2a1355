"""LSTM: gates i, f, o, g; no peepholes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refcaffe.layers.base import register
from refcaffe.layers.recurrent import Recurrent

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter


@register("LSTM")
class LSTM(Recurrent):
    """Tops: h (T, N, D), and with ``expose_hidden`` the last h and c, each (1, N, D).

    Parameters: x-weight (4D, X), bias (4D), static weight (4D, S) if there is a static input, recurrent
    weight (4D, D).
    """

    letter = "c"
    gates = 4
    states = ("h_0", "c_0")
    output = "h"

    @property
    def last_states(self) -> tuple[str, ...]:
        return (f"h_{self.steps}", "c_T")

    def add_step(self, net: NetParameter, t: int) -> None:
        gate_input = f"gate_input_{t}"
        self.add_sum(net, t, f"transform_{t}", gate_input, gate_input)
        bottoms = [f"c_{t - 1}", gate_input, f"cont_{t}"]
        net.layer.add(type="LSTMUnit", name=f"unit_{t}", bottom=bottoms, top=[f"c_{t}", f"h_{t}"])

    def add_end(self, net: NetParameter) -> None:
        net.layer.add(type="Split", bottom=[f"c_{self.steps}"], top=["c_T"])
