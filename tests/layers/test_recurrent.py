"""LSTM and RNN against their formulas step by step; what they keep, what they draw, what they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.proto import caffe_pb2

D, X, S = 3, 2, 4
UNIFORM = {"type": "uniform", "min": -1, "max": 1}


def make(kind: str, bottoms: list[Any], phase: int = caffe_pb2.TRAIN, **fields: Any) -> Any:
    """A layer in double, set up on arrays, with its bottoms and tops."""
    recurrent = {"num_output": D, "weight_filler": UNIFORM, "bias_filler": UNIFORM, **fields}
    param = caffe_pb2.LayerParameter(name="r", type=kind, phase=phase, recurrent_param=recurrent)
    layer = create(param, np.float64)
    bottom = []
    for array in bottoms:
        bottom.append(Blob(np.shape(array), np.float64))
        bottom[-1].data[...] = array
    top = [Blob(dtype=np.float64) for _ in range(layer.exact_tops)]
    context.current().set_random_seed(11)
    layer.set_up(bottom, top)
    return layer, bottom, top


def inputs(steps: int, streams: int, static: bool = False, seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    cont = (rng.random((steps, streams)) > 0.3).astype(float)
    arrays = [rng.normal(size=(steps, streams, X)), cont]
    return arrays + [rng.normal(size=(streams, S))] * static


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def expected(kind: str, params: list[Any], arrays: list[Any], states: list[Any]) -> tuple[Any, list[Any]]:
    """Outputs and last states by the formulas."""
    x, cont, *static = arrays
    w_x, bias, *rest = params
    added = bias + (static[0] @ rest.pop(0).T if static else 0)
    outputs = []
    for t in range(len(x)):
        keep = cont[t][:, np.newaxis]
        total = x[t] @ w_x.T + (keep * states[0]) @ rest[0].T + added
        if kind == "RNN":
            states = [np.tanh(total)]
            outputs.append(np.tanh(states[0] @ rest[1].T + rest[2]))
        else:
            i, f, o, g = np.split(total, 4, axis=1)
            c = keep * sigmoid(f) * states[1] + sigmoid(i) * np.tanh(g)
            states = [sigmoid(o) * np.tanh(c), c]
            outputs.append(states[0])
    return np.array(outputs), states


def start(kind: str, streams: int) -> list[Any]:
    return [np.zeros((streams, D))] * (2 if kind == "LSTM" else 1)


both = pytest.mark.parametrize("kind", ["LSTM", "RNN"])


@both
@pytest.mark.parametrize("static", [False, True])
def test_two_batches_in_a_row(kind: str, static: bool) -> None:
    arrays = inputs(4, 2, static)
    layer, bottom, top = make(kind, arrays)
    params = [blob.data.copy() for blob in layer.blobs]
    states = start(kind, 2)
    for seed in (0, 1):
        arrays[:2] = inputs(4, 2, seed=seed)
        for blob, array in zip(bottom, arrays, strict=True):
            blob.data[...] = array
        layer.forward(bottom, top)
        outputs, states = expected(kind, params, arrays, states)
        assert top[0].data == pytest.approx(outputs, abs=1e-12)


@both
def test_shapes_of_the_parameters(kind: str) -> None:
    layer, _, _ = make(kind, inputs(2, 2, static=True))
    gates = 4 * D if kind == "LSTM" else D
    first = [(gates, X), (gates,), (gates, S), (gates, D)]
    assert [blob.shape for blob in layer.blobs] == first + ([(D, D), (D,)] if kind == "RNN" else [])


@both
def test_exposed_states_go_in_and_out(kind: str) -> None:
    arrays = inputs(3, 2)
    rng = np.random.default_rng(5)
    states = [rng.normal(size=(2, D)) for _ in start(kind, 2)]
    layer, bottom, top = make(kind, arrays + [state[np.newaxis] for state in states], expose_hidden=True)
    params = [blob.data.copy() for blob in layer.blobs]
    for _ in range(2):  # nothing is kept from the first pass
        layer.forward(bottom, top)
        outputs, last = expected(kind, params, arrays, states)
        assert top[0].data == pytest.approx(outputs, abs=1e-12)
        for blob, state in zip(top[1:], last, strict=True):
            assert blob.data[0] == pytest.approx(state, abs=1e-12)
    top[0].diff[...] = 1
    layer.backward(top, [True, False] + [True] * len(states), bottom)
    assert all(not blob.diff.any() for blob in bottom[2:])


@both
def test_gradient(kind: str) -> None:
    arrays = inputs(3, 2, static=True)
    arrays[1][:2] = [[1, 0], [1, 1]]
    layer, bottom, top = make(kind, arrays)
    weights = np.random.default_rng(9).normal(size=(3, 2, D))
    params = [blob.data.copy() for blob in layer.blobs]
    layer.forward(bottom, top)
    top[0].diff[...] = weights
    layer.backward(top, [False] * 3, bottom)
    first = start(kind, 2)
    where = [(bottom[0], arrays[0]), (bottom[2], arrays[2]), *zip(layer.blobs, params, strict=True)]
    for blob, array in where:
        flat, diff = array.reshape(-1), blob.diff.reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            values = []
            for step in (1e-5, -1e-5):
                flat[i] = kept + step
                values.append((expected(kind, params, arrays, first)[0] * weights).sum())
            flat[i] = kept
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(diff[i], abs=1e-7)


@both
def test_parameter_diffs_add_up_and_bottom_diffs_do_not(kind: str) -> None:
    layer, bottom, top = make(kind, inputs(2, 2), expose_hidden=False)
    layer.forward(bottom, top)
    top[0].diff[...] = 1
    diffs = []
    for _ in range(2):
        layer.backward(top, [True, False], bottom)
        diffs.append([blob.diff.copy() for blob in [bottom[0], *layer.blobs]])
    assert np.array_equal(diffs[0][0], diffs[1][0])
    for once, twice in zip(diffs[0][1:], diffs[1][1:], strict=True):
        assert twice == pytest.approx(2 * once)


@both
@pytest.mark.parametrize("steps", [1, 4])
def test_every_time_step_draws_weights(kind: str, steps: int) -> None:
    layer, _, _ = make(kind, inputs(steps, 1))
    stream = context.current().stream
    once = sum(blob.count for blob in layer.blobs[:2])
    per_step = sum(blob.count for blob in layer.blobs[2:])
    context.current().set_random_seed(11)
    drawn = np.empty(once + steps * per_step)
    context.current().stream.uniform(drawn.size, -1, 1, drawn)
    assert stream.draws == context.current().stream.draws
    first = np.concatenate([blob.data.reshape(-1) for blob in layer.blobs])
    assert np.array_equal(first, drawn[: first.size])


@both
def test_more_streams_than_ever_start_anew(kind: str) -> None:
    arrays = inputs(2, 2)
    layer, bottom, top = make(kind, arrays)
    params = [blob.data.copy() for blob in layer.blobs]
    layer.forward(bottom, top)
    arrays = inputs(2, 3, seed=1)
    arrays[1][...] = 1
    for blob, array in zip(bottom, arrays, strict=True):
        blob.reshape(array.shape)
        blob.data[...] = array
    layer.forward(bottom, top)
    assert top[0].data == pytest.approx(expected(kind, params, arrays, start(kind, 3))[0], abs=1e-12)


def test_fewer_streams_go_on_with_the_first_states() -> None:
    layer, bottom, top = make("RNN", inputs(2, 3))
    params = [blob.data.copy() for blob in layer.blobs]
    layer.forward(bottom, top)
    _, states = expected("RNN", params, inputs(2, 3), start("RNN", 3))
    arrays = inputs(2, 2, seed=1)
    arrays[1][...] = 1
    for blob, array in zip(bottom, arrays, strict=True):
        blob.reshape(array.shape)
        blob.data[...] = array
    layer.forward(bottom, top)
    outputs, _ = expected("RNN", params, arrays, [states[0][:2]])
    assert top[0].data == pytest.approx(outputs, abs=1e-12)


@pytest.mark.parametrize("phase", [caffe_pb2.TRAIN, caffe_pb2.TEST])
def test_only_a_test_net_follows_new_parameter_memory_at_all_steps(phase: int) -> None:
    arrays = inputs(2, 2)
    arrays[1][...] = 1
    layer, bottom, top = make("RNN", arrays, phase=phase)
    params = [blob.data.copy() for blob in layer.blobs]
    other = Blob((D, D), np.float64)
    layer.blobs[2].share_data(other)  # recurrent weights of 0
    layer.forward(bottom, top)
    new = [*params[:2], np.zeros((D, D)), *params[3:]]
    outputs = expected("RNN", new, arrays, start("RNN", 2))[0]
    assert top[0].data[0] == pytest.approx(outputs[0], abs=1e-12)
    follows = np.allclose(top[0].data[1], outputs[1])
    assert follows == (phase == caffe_pb2.TEST)


@both
def test_refusals_say_what_is_wrong(kind: str) -> None:
    layer, bottom, top = make(kind, inputs(2, 2))
    with pytest.raises(CheckError, match="Cannot backpropagate to sequence indicators"):
        layer.backward(top, [True, True], bottom)
    bottom[0].reshape(3, 2, X)
    with pytest.raises(CheckError, match="input number of timesteps changed"):
        layer.forward(bottom, top)
    with pytest.raises(CheckError, match="num_output must be positive"):
        make(kind, inputs(2, 2), num_output=0)
    with pytest.raises(CheckError, match=r"N_ == bottom\[2\]->shape\(0\)"):
        make(kind, [*inputs(2, 2), np.zeros((1, S))])


def test_the_numbers_of_blobs_follow_expose_hidden() -> None:
    exposed = caffe_pb2.LayerParameter(type="LSTM", recurrent_param={"expose_hidden": True})
    layer = create(exposed)
    assert (layer.min_bottoms, layer.max_bottoms, layer.exact_tops) == (4, 5, 3)
    layer = create(caffe_pb2.LayerParameter(type="RNN"))
    assert (layer.min_bottoms, layer.max_bottoms, layer.exact_tops) == (2, 3, 1)
    assert [layer.allow_force_backward(i) for i in range(3)] == [True, False, True]
