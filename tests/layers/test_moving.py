"""Layers that move numbers: laws that hold for all shapes, and what sharing and refusing looks like."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.layers.base import Layer
from refcaffe.proto import caffe_pb2

shapes = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


def make(layer_type: str, bottoms: list[Any], tops: int = 1, dtype: type = np.float32, **fields: Any) -> Any:
    """A layer set up on arrays (or blobs), with its bottoms and tops."""
    layer = create(caffe_pb2.LayerParameter(name="layer", type=layer_type, **fields), dtype)
    bottom = [blob_of(array, dtype) for array in bottoms]
    top = [Blob(dtype=dtype) for _ in range(tops)]
    layer.set_up(bottom, top)
    return layer, bottom, top


def blob_of(array: Any, dtype: type = np.float32) -> Blob:
    if isinstance(array, Blob):
        return array
    blob = Blob(np.shape(array), dtype)
    blob.data[...] = array
    return blob


def whole_numbers(shape: tuple[int, ...], seed: int = 0) -> Any:
    """Values whose sums are exact."""
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def is_adjoint(layer: Layer, bottom: list[Blob], top: list[Blob], moved: int) -> bool:
    """What the layer does to its first ``moved`` bottoms is linear; so <y, dy> = <x, dx>, exactly."""
    layer.forward(bottom, top)
    for i, blob in enumerate(top):
        blob.diff[...] = whole_numbers(blob.shape, 100 + i)
    layer.backward(top, [i < moved for i in range(len(bottom))], bottom)
    above = sum(float((blob.data * blob.diff).sum()) for blob in top)
    return above == sum(float((blob.data * blob.diff).sum()) for blob in bottom[:moved])


@given(shapes, st.data())
def test_concat_undoes_slice(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    length = shape[axis]
    points = sorted(data.draw(st.sets(st.integers(1, length - 1)) if length > 1 else st.just(set())))
    x = whole_numbers(shape)
    param = {"axis": axis, "slice_point": points}
    slicing, bottom, parts = make("Slice", [x], len(points) + 1, slice_param=param)
    slicing.forward(bottom, parts)
    for part, expected in zip(parts, np.split(x, points, axis), strict=True):
        assert np.array_equal(part.data, expected)
    joining, _, joined = make("Concat", parts, concat_param={"axis": axis})
    joining.forward(parts, joined)
    assert np.array_equal(joined[0].data, x)
    joined[0].diff[...] = dy = whole_numbers(shape, 1)
    joining.backward(joined, [True] * len(parts), parts)
    slicing.backward(parts, [True], bottom)
    assert np.array_equal(bottom[0].diff, dy)


def test_slice_into_equal_parts_by_its_old_name() -> None:
    x = whole_numbers((2, 6))
    layer, bottom, top = make("Slice", [x], 3, slice_param={"slice_dim": 1})
    layer.forward(bottom, top)
    assert [blob.shape for blob in top] == [(2, 2)] * 3
    assert np.array_equal(top[2].data, x[:, 4:])


def test_slice_point_past_int_is_negative() -> None:
    with pytest.raises(CheckError, match=r"slice_point_\[i\] > prev \(-1 vs\. 0\)"):
        make("Slice", [np.zeros((2, 4))], 2, slice_param={"slice_point": [2**32 - 1]})


def test_concat_leaves_unwanted_diffs_alone() -> None:
    layer, bottom, top = make("Concat", [np.ones((1, 2)), np.ones((1, 3))])
    layer.forward(bottom, top)
    top[0].diff[...] = 7
    layer.backward(top, [False, True], bottom)
    assert not bottom[0].diff.any()
    assert (bottom[1].diff == 7).all()


@pytest.mark.parametrize("layer_type", ["Concat", "Slice", "Reshape"])
def test_one_for_one_shares_data_and_diff(layer_type: str) -> None:
    fields = {"reshape_param": {"shape": {"dim": [0, -1]}}} if layer_type == "Reshape" else {}
    _, bottom, top = make(layer_type, [np.ones((2, 3))], **fields)
    top[0].data[...] = 5
    top[0].diff[...] = 6
    assert (bottom[0].data == 5).all()
    assert (bottom[0].diff == 6).all()


@given(shapes, st.data())
def test_reshape_infers_one_dimension(shape: tuple[int, ...], data: st.DataObject) -> None:
    inferred = data.draw(st.integers(0, len(shape) - 1))
    dims = [-1 if i == inferred else data.draw(st.sampled_from([0, dim])) for i, dim in enumerate(shape)]
    _, _, top = make("Reshape", [np.zeros(shape)], reshape_param={"shape": {"dim": dims}})
    assert top[0].shape == shape


@given(shapes, st.data())
def test_reshape_replaces_a_range_of_axes(shape: tuple[int, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(shape)))
    count = data.draw(st.integers(0, len(shape) - start))
    axis = data.draw(st.sampled_from([start, start - len(shape) - 1]))
    param = {"shape": {"dim": [1, -1]}, "axis": axis, "num_axes": count}
    _, _, top = make("Reshape", [np.zeros(shape)], reshape_param=param)
    replaced = shape[start : start + count]
    assert top[0].shape == (*shape[:start], 1, int(np.prod(replaced)), *shape[start + count :])


def test_reshape_cannot_infer_beside_an_empty_axis() -> None:
    with pytest.raises(CheckError, match="without elements"):
        make("Reshape", [Blob((0, 3))], reshape_param={"shape": {"dim": [0, -1]}})


@given(shapes, st.data())
def test_flatten(shape: tuple[int, ...], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(shape) - 1))
    end = data.draw(st.integers(start, len(shape) - 1))
    x = whole_numbers(shape)
    param = {"axis": start, "end_axis": end - len(shape)}
    layer, bottom, top = make("Flatten", [x], flatten_param=param)
    layer.forward(bottom, top)
    assert np.array_equal(top[0].data, x.reshape(*shape[:start], -1, *shape[end + 1 :]))
    top[0].diff[...] = 3
    layer.backward(top, [False], bottom)
    assert bottom[0].diff_memory() is top[0].diff_memory()


@given(shapes, st.data())
def test_crop_is_a_slice(shape: tuple[int, ...], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    cut = shape[axis:]
    offsets = [data.draw(st.integers(0, dim - 1)) for dim in cut]
    sizes = [data.draw(st.integers(1, dim - offset)) for dim, offset in zip(cut, offsets, strict=True)]
    x = whole_numbers(shape)
    size = np.zeros((*[9] * axis, *sizes))
    layer, bottom, top = make("Crop", [x, size], crop_param={"axis": axis, "offset": offsets})
    layer.forward(bottom, top)
    part = (slice(None),) * axis + tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
    assert np.array_equal(top[0].data, x[part])
    assert is_adjoint(layer, bottom, top, 1)


def test_crop_refuses_an_offset_that_is_negative_as_an_int() -> None:
    with pytest.raises(CheckError, match="crop_offset >= 0"):
        make("Crop", [np.zeros((1, 1, 4, 4)), np.zeros((1, 1, 2, 2))], crop_param={"offset": [2**32 - 1]})


@given(shapes, st.integers(1, 4), st.data())
def test_tile_repeats_blocks(shape: tuple[int, ...], tiles: int, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = whole_numbers(shape)
    layer, bottom, top = make("Tile", [x], tile_param={"axis": axis, "tiles": tiles})
    layer.forward(bottom, top)
    assert np.array_equal(top[0].data, np.concatenate([x] * tiles, axis))
    assert is_adjoint(layer, bottom, top, 1)


@given(shapes, st.data())
def test_batch_reindex_picks_rows(shape: tuple[int, ...], data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, shape[0] - 1), min_size=1, max_size=6))
    x = whole_numbers(shape)
    layer, bottom, top = make("BatchReindex", [x, np.array(rows) + 0.75])
    layer.forward(bottom, top)
    assert np.array_equal(top[0].data, x[rows])
    assert is_adjoint(layer, bottom, top, 1)


@pytest.mark.parametrize("index", [-0.5, 3, np.nan])
def test_batch_reindex_refuses_what_is_no_row(index: float) -> None:
    layer, bottom, top = make("BatchReindex", [np.zeros((3, 2)), np.array([1, index])])
    with pytest.raises(CheckError, match="Index specified for reindex layer was"):
        layer.forward(bottom, top)


@given(st.integers(1, 5), st.data())
def test_filter_follows_its_selector(rows: int, data: st.DataObject) -> None:
    a, b = whole_numbers((rows, 3)), whole_numbers((rows, 2, 2), 1)
    layer, bottom, top = make("Filter", [a, b, np.zeros((rows, 1))], 2)
    assert top[0].shape == a.shape
    for _ in range(2):
        picked = data.draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
        bottom[2].data[:, 0] = np.where(picked, -0.5, 0)
        layer.forward(bottom, top)
        assert np.array_equal(top[0].data, a[picked])
        assert np.array_equal(top[1].data, b[picked])
        if any(picked):
            assert is_adjoint(layer, bottom, top, 2)
        else:
            with pytest.raises(CheckError, match="Nothing was selected"):
                layer.backward(top, [True, True, False], bottom)


def test_parameter_is_its_top() -> None:
    layer, _, top = make("Parameter", [], parameter_param={"shape": {"dim": [2, 3]}})
    layer.blobs[0].data[...] = whole_numbers((2, 3))
    layer.forward([], top)
    top[0].diff[...] = 4
    assert np.array_equal(top[0].data, whole_numbers((2, 3)))
    assert (layer.blobs[0].diff == 4).all()


def test_input_without_shape_waits_for_one() -> None:
    layer, _, top = make("Input", [], 2)
    assert [blob.count for blob in top] == [0, 0]
    top[0].reshape(2, 3)
    layer.forward([], top)
    assert top[0].shape == (2, 3)


def test_split_refuses_a_bottom_that_never_got_a_shape() -> None:
    split = create(caffe_pb2.LayerParameter(type="Split"))
    with pytest.raises(CheckError, match=r"count_ == top\[i\]->count\(\) \(0 vs\. 1\)"):
        split.set_up([Blob()], [Blob(), Blob()])


def test_dummy_data_draws_in_forward_only_and_in_order() -> None:
    context.current().set_random_seed(3)
    stream = context.current().stream
    fillers = [{"type": "uniform"}, {"type": "constant", "value": 2}, {"type": "gaussian"}]
    param = {"shape": [{"dim": [5]}, {"dim": [2]}, {"dim": [3]}], "data_filler": fillers}
    layer, _, top = make("DummyData", [], 3, dummy_data_param=param)
    assert stream.draws == 0
    assert (top[1].data == 2).all()
    top[1].data[...] = 9
    layer.forward([], top)
    context.current().set_random_seed(3)
    expected, more = np.zeros(5, np.float32), np.zeros(3, np.float32)
    context.current().stream.uniform(5, 0, 1, expected)
    context.current().stream.gaussian(3, 0, 1, more)
    assert np.array_equal(top[0].data, expected)
    assert np.array_equal(top[2].data, more)
    assert (top[1].data == 9).all()


def test_dummy_data_without_a_filler_is_zero() -> None:
    param = {"num": [2], "channels": [1, 3], "height": [1], "width": [2, 4]}
    _, _, top = make("DummyData", [], 2, dummy_data_param=param)
    assert [blob.shape for blob in top] == [(2, 1, 1, 2), (2, 3, 1, 4)]
    assert not top[1].data.any()


def lstm_unit(cont: list[float], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    n = len(cont)
    arrays = [rng.normal(size=(1, n, 3)), rng.normal(size=(1, n, 12)), np.array([cont])]
    return make("LSTMUnit", arrays, 2, np.float64)


def test_lstm_unit_gradient() -> None:
    layer, bottom, top = lstm_unit([1, 0, 1])
    weights = [whole_numbers((1, 3, 3), i).astype(np.float64) for i in range(2)]

    def objective() -> float:
        layer.forward(bottom, top)
        return sum(float((blob.data * w).sum()) for blob, w in zip(top, weights, strict=True))

    objective()
    for blob, w in zip(top, weights, strict=True):
        blob.diff[...] = w
    layer.backward(top, [True, True, False], bottom)
    for blob in bottom[:2]:
        flat = blob.data.reshape(-1)
        for i in range(flat.size):
            kept = flat[i]
            values = []
            for step in (1e-5, -1e-5):
                flat[i] = kept + step
                values.append(objective())
            flat[i] = kept
            assert (values[0] - values[1]) / 2e-5 == pytest.approx(blob.diff.reshape(-1)[i], abs=1e-7)


def test_lstm_unit_forgets_even_nan() -> None:
    layer, bottom, top = lstm_unit([0, 1])
    bottom[1].data[0, :, 3:6] = np.nan
    layer.forward(bottom, top)
    assert np.isfinite(top[0].data[0, 0]).all()
    assert np.isnan(top[0].data[0, 1]).all()


def test_lstm_unit_touches_nothing_unwanted() -> None:
    layer, bottom, top = lstm_unit([1, 1])
    layer.forward(bottom, top)
    top[0].diff[...] = 1
    layer.backward(top, [False, False, False], bottom)
    assert not bottom[0].diff.any()
    assert not bottom[1].diff.any()
