"""Nets written in Python: ``layers.<Type>(bottoms, fields=...)`` gives tops, a ``NetSpec`` names them.

>>> n = NetSpec()
>>> n.data = layers.Input(shape=dict(dim=[1, 3, 8, 8]))
>>> n.conv = layers.Convolution(n.data, kernel_size=3, num_output=4, weight_filler=dict(type="xavier"))
>>> n.relu = layers.ReLU(n.conv, in_place=True)
>>> net_parameter = n.to_proto()
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter


def _own_fields() -> dict[str, str]:
    """Layer type -> the field of LayerParameter that is its own: ``InnerProduct`` -> ``inner_product_param``."""
    fields = caffe_pb2.LayerParameter.DESCRIPTOR.fields
    own = (field for field in fields if field.name.endswith("_param") and field.message_type is not None)
    return {field.message_type.name.removesuffix("Parameter"): field.name for field in own}


_OWN_FIELD = _own_fields()


def assign_proto(message: Any, name: str, value: Any) -> None:
    """Give a field of a message a Python value.

    A dict fills a message; a list or tuple extends a repeated field, and so does a single value.
    """
    field = getattr(message, name)
    if hasattr(field, "extend"):
        values = value if isinstance(value, list | tuple) else [value]
        if values and isinstance(values[0], dict):
            for item in values:
                _fill(field.add(), item)
        else:
            field.extend(values)
    elif isinstance(value, dict):
        _fill(field, value)
    else:
        setattr(message, name, value)


def _fill(message: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        assign_proto(message, name, value)


class Top:
    """Output number ``n`` of a layer."""

    def __init__(self, fn: Function, n: int) -> None:
        self.fn = fn
        self.n = n

    def to_proto(self) -> NetParameter:
        """The net that computes this output; blobs are named by type and number."""
        return to_proto(self)


class Function:
    """A layer: its type, the tops it reads, its fields. ``ntop`` and ``in_place`` are taken from the fields."""

    def __init__(self, type_name: str, inputs: Iterable[Top], params: dict[str, Any]) -> None:
        self.type_name = type_name
        self.inputs = tuple(inputs)
        for index, top in enumerate(self.inputs):
            if not isinstance(top, Top):
                raise TypeError(f"{type_name} input {index} is not a Top (type is {type(top)})")
        self.params = dict(params)
        self.ntop: int = self.params.pop("ntop", 1)
        self.in_place: bool = self.params.pop("in_place", False)
        self.tops = tuple(Top(self, n) for n in range(self.ntop))

    def to_proto(self) -> NetParameter:
        """The net that ends with this layer, which may have no tops."""
        return to_proto(self)


class _Writer:
    """Layers in the order in which they can run, each written once."""

    def __init__(self) -> None:
        self.layers: dict[Function, LayerParameter] = {}
        self._numbers: Counter[str] = Counter()

    def net(self) -> NetParameter:
        net = caffe_pb2.NetParameter()
        net.layer.extend(self.layers.values())
        return net

    def add(self, last: Function, names: dict[Any, str]) -> None:
        """Write a layer after those it reads from. ``names`` has the names that the user gave, and takes new ones."""
        waiting: list[tuple[Function, Iterator[Top]]] = [(last, iter(last.inputs))]
        while waiting:
            function, inputs = waiting[-1]
            if function in self.layers:
                waiting.pop()
                continue
            source = next(inputs, None)
            if source is None:
                self.layers[function] = self._layer(function, names)
                waiting.pop()
            else:
                waiting.append((source.fn, iter(source.fn.inputs)))

    def _layer(self, function: Function, names: dict[Any, str]) -> LayerParameter:
        layer = caffe_pb2.LayerParameter(type=function.type_name)
        layer.bottom.extend(self.layers[source.fn].top[source.n] for source in function.inputs)
        if function.in_place:
            layer.top.extend(layer.bottom)
        else:
            layer.top.extend(self._name(top, function, names) for top in function.tops)
        layer.name = self._name(function.tops[0] if function.tops else function, function, names)
        own = _OWN_FIELD.get(function.type_name)
        for name, value in function.params.items():
            # What the layer's own message does not have is a field of every layer, and so is what ends in "param".
            inside = getattr(layer, own) if own and not name.endswith("param") else None
            assign_proto(inside if hasattr(inside, name) else layer, name, value)
        return layer

    def _name(self, thing: Top | Function, function: Function, names: dict[Any, str]) -> str:
        if thing not in names:
            self._numbers[function.type_name] += 1
            names[thing] = f"{function.type_name}{self._numbers[function.type_name]}"
        return names[thing]


def _function(thing: Top | Function) -> Function:
    return thing.fn if isinstance(thing, Top) else thing


def to_proto(*tops: Top | Function) -> NetParameter:
    """The net that computes the given tops; blobs are named by type and number."""
    writer = _Writer()
    for top in tops:
        writer.add(_function(top), {})
    return writer.net()


class NetSpec:
    """Tops by name, given as attributes or items; a layer is named as its first top."""

    tops: dict[str, Any]

    def __init__(self) -> None:
        super().__setattr__("tops", {})

    def __setattr__(self, name: str, top: Any) -> None:
        self.tops[name] = top

    def __getattr__(self, name: str) -> Any:
        if name == "tops" or name not in self.tops:
            raise AttributeError(f"no top named {name!r} has been given")
        return self.tops[name]

    def __setitem__(self, name: str, top: Any) -> None:
        self.tops[name] = top

    def __getitem__(self, name: str) -> Any:
        return self.tops[name]

    def to_proto(self) -> NetParameter:
        """The net that computes all of them."""
        writer = _Writer()
        names: dict[Any, str] = {top: name for name, top in self.tops.items()}
        for top in self.tops.values():
            writer.add(_function(top), names)
        return writer.net()


class Layers:
    """``layers.<Type>(*bottoms, **fields)``: one top, a tuple of ``ntop`` of them, or the Function if that is 0."""

    def __getattr__(self, type_name: str) -> Callable[..., Any]:
        if type_name.startswith("_"):
            raise AttributeError(type_name)

        def layer(*inputs: Top, **params: Any) -> Any:
            function = Function(type_name, inputs, params)
            if function.ntop == 0:
                return function
            return function.tops[0] if function.ntop == 1 else function.tops

        return layer


class Parameters:
    """``params.Pooling.MAX``: the constants of a layer type's parameters."""

    def __getattr__(self, type_name: str) -> Any:
        if type_name.startswith("_"):
            raise AttributeError(type_name)
        return getattr(caffe_pb2, f"{type_name}Parameter")


layers = Layers()
params = Parameters()
