"""Pictures of nets: Graphviz's language, and, with or without Graphviz's ``dot`` program, SVG and PNG."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from refcaffe.proto import caffe_pb2

if TYPE_CHECKING:
    from refcaffe.proto.caffe_pb2 import LayerParameter, NetParameter

_COLORS = {"Convolution": "#FF5050", "Deconvolution": "#FF5050", "Pooling": "#FF9900", "InnerProduct": "#CC33FF"}
_LAYER_COLOR, _IN_PLACE_COLOR, _BLOB_COLOR = "#6495ED", "#90EE90", "#E0E0E0"
_WITH_RATES = ("Convolution", "Deconvolution", "InnerProduct")


@dataclass
class Node:
    """A layer or a blob."""

    label: str  # lines
    color: str
    is_blob: bool


@dataclass
class Graph:
    """``edges`` are (from, to, label), of the names that ``nodes`` has."""

    name: str
    rankdir: str
    nodes: dict[str, Node]
    edges: list[tuple[str, str, str]]


def get_pooling_types_dict() -> dict[int, str]:
    """The names of the pooling methods by number."""
    return {number: name for name, number in caffe_pb2.PoolingParameter.PoolMethod.items()}


def choose_color_by_layertype(layertype: str) -> str:
    """The color of a layer."""
    return _COLORS.get(layertype, _LAYER_COLOR)


def get_edge_label(layer: LayerParameter) -> str:
    """What stands beside the way from a layer to its tops: the batch size or the number of outputs."""
    if layer.type == "Data":
        return f"Batch {layer.data_param.batch_size}"
    if layer.type in ("Convolution", "Deconvolution"):
        return str(layer.convolution_param.num_output)
    return str(layer.inner_product_param.num_output) if layer.type == "InnerProduct" else ""


def get_layer_lr_mult(layer: LayerParameter) -> tuple[float, float]:
    """The rates of weights and biases. ValueError for a layer of a type that has none, or has more."""
    if layer.type not in _WITH_RATES:
        raise ValueError(f"{layer.type} layers do not have a learning rate multiplier")
    rates = [spec.lr_mult for spec in layer.param]
    if len(rates) > 2:
        raise ValueError("Could not parse the learning rate multiplier")
    weight, bias = rates + [1.0] * (2 - len(rates))
    return weight, bias


def get_layer_label(layer: LayerParameter, rankdir: str, display_lrm: bool = False) -> str:
    """Name, type, and what matters of the parameters: in lines if the picture runs sideways, else in one."""
    kind = layer.type
    if kind == "Pooling":
        kind += f" {get_pooling_types_dict()[layer.pooling_param.pool]}"
    parts = [layer.name, f"({kind})"]
    if layer.type == "Pooling":
        pool = layer.pooling_param
        parts += _spatial(pool.kernel_size, pool.stride, pool.pad)
    elif layer.type in ("Convolution", "Deconvolution"):
        conv = layer.convolution_param
        parts += _spatial([*conv.kernel_size, 1][0], [*conv.stride, 1][0], [*conv.pad, 0][0])
    if display_lrm and layer.type in _WITH_RATES and any(get_layer_lr_mult(layer)):
        parts.append("lr mult: {:.1f}, {:.1f}".format(*get_layer_lr_mult(layer)))
    return (" " if rankdir in ("TB", "BT") else "\n").join(parts)


def _spatial(kernel: int, stride: int, pad: int) -> list[str]:
    return [f"kernel size: {kernel}", f"stride: {stride}", f"pad: {pad}"]


def _in_phase(layer: LayerParameter, phase: int) -> bool:
    if layer.include and layer.exclude:
        raise ValueError(f"layer {layer.name} has both include and exclude specified.")
    included = not layer.include or any(rule.phase == phase for rule in layer.include)
    return included and not any(rule.phase == phase for rule in layer.exclude)


def net_graph(
    caffe_net: NetParameter, rankdir: str, label_edges: bool = True, phase: int | None = None, display_lrm: bool = False
) -> Graph:
    """The layers and blobs of a definition, those of one phase if that is given. ``rankdir``: LR, RL, TB or BT."""
    graph = Graph(caffe_net.name or "Net", rankdir, {}, [])
    for layer in caffe_net.layer:
        if phase is not None and not _in_phase(layer, phase):
            continue
        in_place = len(layer.bottom) == len(layer.top) == 1 and layer.bottom[0] == layer.top[0]
        color = _IN_PLACE_COLOR if in_place else choose_color_by_layertype(layer.type)
        name = f"{layer.name}_{layer.type}"
        graph.nodes[name] = Node(get_layer_label(layer, rankdir, display_lrm), color, False)
        for blob in (*layer.bottom, *layer.top):
            graph.nodes[f"{blob}_blob"] = Node(blob, _BLOB_COLOR, True)
        graph.edges += [(f"{blob}_blob", name, "") for blob in layer.bottom]
        label = get_edge_label(layer) if label_edges else ""
        graph.edges += [(name, f"{blob}_blob", label) for blob in layer.top]
    return graph


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def to_dot(graph: Graph) -> str:
    """The graph in Graphviz's language."""
    lines = [f"digraph {_quoted(graph.name)} {{", f"  rankdir={graph.rankdir};"]
    for name, node in graph.nodes.items():
        shape = "octagon" if node.is_blob else "box"
        style = f'label={_quoted(node.label)}, shape={shape}, style=filled, fillcolor="{node.color}"'
        lines.append(f"  {_quoted(name)} [{style}];")
    for source, to, label in graph.edges:
        lines.append(f"  {_quoted(source)} -> {_quoted(to)}" + (f" [label={_quoted(label)}];" if label else ";"))
    return "\n".join([*lines, "}", ""])


def draw_net(
    caffe_net: NetParameter, rankdir: str, ext: str = "png", phase: int | None = None, display_lrm: bool = False
) -> bytes:
    """A picture's file contents, in any format that ``dot`` knows.

    Without that program there are ``svg`` and ``png``, drawn more plainly, and ``dot`` (or ``gv``, ``raw``), which is
    text to be drawn elsewhere; RuntimeError for others.
    """
    graph = net_graph(caffe_net, rankdir, phase=phase, display_lrm=display_lrm)
    text = to_dot(graph).encode()
    if ext in ("dot", "gv", "raw"):
        return text
    program = shutil.which("dot")
    if program is not None:
        done = subprocess.run([program, f"-T{ext}"], input=text, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"dot -T{ext} failed: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout
    if ext not in ("svg", "png"):
        raise RuntimeError(f"a .{ext} picture needs Graphviz's program dot, which is not here; .svg and .png do not")
    from refcaffe.pycaffe import picture

    return picture.svg(graph) if ext == "svg" else picture.png(graph)


def draw_net_to_file(
    caffe_net: NetParameter,
    filename: str | os.PathLike[str],
    rankdir: str = "LR",
    phase: int | None = None,
    display_lrm: bool = False,
) -> None:
    """Draw a net into a file, in the format that its name ends in."""
    from refcaffe.proto.io import replacing

    picture = draw_net(caffe_net, rankdir, os.fspath(filename).rpartition(".")[2], phase, display_lrm)
    with replacing(filename) as file:
        file.write(picture)
