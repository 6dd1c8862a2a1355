"""RNN: a plain recurrent layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refcaffe.layers.base import register
from refcaffe.layers.recurrent import Recurrent

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import NetParameter


@register("RNN")
class RNN(Recurrent):
    """h = tanh(W_xh x + b_h + W_hh h), o = tanh(W_ho h + b_o).

    Tops: o (T, N, D), and with ``expose_hidden`` the last h (1, N, D). Parameters: x-weight (D, X), bias (D),
    static weight (D, S) if there is a static input, recurrent weight, output weight (D, D), output bias (D).
    """

    letter = "h"
    gates = 1
    states = ("h_0",)
    output = "o"

    @property
    def last_states(self) -> tuple[str, ...]:
        return (f"h_{self.steps}",)

    def add_step(self, net: NetParameter, t: int) -> None:
        self.add_sum(net, t, f"W_hh_h_{t - 1}", f"h_input_sum_{t}", f"h_neuron_input_{t}")
        net.layer.add(type="TanH", name=f"h_neuron_{t}", bottom=[f"h_neuron_input_{t}"], top=[f"h_{t}"])
        net.layer.add(
            type="InnerProduct",
            name=f"W_ho_h_{t}",
            bottom=[f"h_{t}"],
            top=[f"W_ho_h_{t}"],
            param=[{"name": "W_ho"}, {"name": "b_o"}],
            inner_product_param=self.product(1, bias=True),
        )
        net.layer.add(type="TanH", name=f"o_neuron_{t}", bottom=[f"W_ho_h_{t}"], top=[f"o_{t}"])
