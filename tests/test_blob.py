"""Blob: laws of shapes, sharing and protos, and pycaffe's attributes; the recorded scripts are conformance cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.device import Memory
from refcaffe.proto import caffe_pb2
from refcaffe.syncedmem import Head

SHAPES = st.lists(st.integers(0, 5), max_size=5)


@given(SHAPES)
def test_count_is_the_product_of_the_shape(shape):
    blob = Blob(shape)
    assert blob.count == int(np.prod(shape, dtype=int))
    assert blob.shape == tuple(shape)
    assert blob.count_range(0) == blob.count
    assert blob.shape_string == "".join(f"{d} " for d in shape) + f"({blob.count})"


@given(SHAPES, SHAPES)
def test_memory_is_kept_until_a_shape_needs_more(first, second):
    blob = Blob(first)
    before = blob.memories[0]
    blob.reshape(second)
    grows = blob.count > int(np.prod(first, dtype=int))
    assert (blob.memories[0] is not before) == grows
    assert blob.capacity == max(blob.count, int(np.prod(first, dtype=int)))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_offset_is_the_position_in_c_order(shape, data):
    index = [data.draw(st.integers(0, dim - 1)) for dim in shape]
    assert Blob(shape).offset(index) == np.ravel_multi_index(index, shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(shape=st.lists(st.integers(1, 4), max_size=4), seed=st.integers(0, 9))
def test_a_blob_survives_its_proto(dtype, shape, seed):
    rng = np.random.default_rng(seed)
    blob, proto = Blob(shape, dtype), caffe_pb2.BlobProto()
    blob.data[...] = rng.normal(size=shape)
    blob.diff[...] = rng.normal(size=shape)
    blob.to_proto(proto, write_diff=True)
    again = Blob(dtype=dtype)
    again.from_proto(caffe_pb2.BlobProto.FromString(proto.SerializeToString()))
    assert again.shape_equals(proto)
    np.testing.assert_array_equal(again.cpu_data(), blob.cpu_data())
    np.testing.assert_array_equal(again.cpu_diff(), blob.cpu_diff())


def test_arrays_are_live_and_move_the_head():
    blob = Blob((2, 3))
    view = blob.data
    view[...] = 5
    assert blob.memories[0].head is Head.HEAD_AT_CPU
    assert blob.cpu_data() is view
    blob.reshape(3, 2)
    assert np.shares_memory(blob.data, view)
    assert blob.data.shape == (3, 2)


def test_pycaffe_attributes():
    blob = Blob((2, 3, 4, 5))
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 3, 4, 5, 120)
    blob.reshape(1, 6)
    assert list(blob.shape) == [1, 6]
    assert (blob.num, blob.channels, blob.height, blob.width) == (1, 6, 1, 1)


def test_shared_data_stays_shared_until_a_blob_outgrows_it():
    a, b = Blob((4,)), Blob((2, 2))
    b.share_data(a)
    a.data[...] = 7
    np.testing.assert_array_equal(b.cpu_data(), 7)
    b.reshape(3, 3)
    assert not np.shares_memory(a.data, b.data)


def test_too_small_a_shared_memory_is_seen_flat():
    a, b = Blob((2,)), Blob((4,))
    b.reshape(2)
    b.share_data(a)
    b.reshape(4)  # its own capacity is enough, so upstream makes nothing anew
    assert b.cpu_data().shape == (2,)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_integer_blobs_have_no_arithmetic(dtype):
    blob = Blob((2,), dtype)
    for call in (blob.update, blob.asum_data, blob.sumsq_diff, lambda: blob.scale_data(2)):
        with pytest.raises(CheckError, match="Not Implemented Yet"):
            call()
    with pytest.raises(TypeError, match="int32"):
        blob.to_proto(caffe_pb2.BlobProto())


def test_a_refused_shape_leaves_the_blob_as_it_was():
    blob = Blob((2, 3))
    blob.data[...] = 1
    for shape in [(-1,), (70000, 70000), (1,) * 33]:
        with pytest.raises(CheckError):
            blob.reshape(shape)
    assert blob.shape == (2, 3)
    np.testing.assert_array_equal(blob.cpu_data(), 1)


def test_a_huge_shape_allocates_nothing_until_it_is_touched():
    assert Blob((2**31 - 1,)).memories[0].head is Head.UNINITIALIZED


def test_set_cpu_data_uses_the_callers_array():
    blob, array = Blob((3,)), np.arange(3, dtype=np.float32)
    blob.set_cpu_data(Memory.of(array))
    blob.data[0] = 9
    assert array[0] == 9


def test_update_subtracts_the_diff():
    blob = Blob((3,))
    blob.data[...] = [1, 2, 3]
    blob.diff[...] = 0.5
    blob.update()
    np.testing.assert_array_equal(blob.cpu_data(), [0.5, 1.5, 2.5])
