"""Datum: what the wire reader makes of bytes, beside the protobuf library."""

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from refcaffe.checks import CheckError
from refcaffe.data import parse, serialize
from refcaffe.kernels.datum import ENCODED, SIZE, START, find_fields
from refcaffe.proto import caffe_pb2

int32 = st.integers(-(2**31), 2**31 - 1)
float32 = st.floats(width=32, allow_nan=False)
FIELDS = ("channels", "height", "width", "label")


@st.composite
def messages(draw):
    message = caffe_pb2.Datum()
    for field in FIELDS:
        if draw(st.booleans()):
            setattr(message, field, draw(int32))
    if draw(st.booleans()):
        message.data = draw(st.binary(max_size=300))
    if draw(st.booleans()):
        message.encoded = draw(st.booleans())
    message.float_data.extend(draw(st.lists(float32, max_size=40)))
    return message


def same(datum, message):
    return (
        [getattr(datum, field) for field in (*FIELDS, "encoded")]
        == [getattr(message, field) for field in (*FIELDS, "encoded")]
        and datum.data.tobytes() == message.data
        and np.array_equal(datum.float_data, np.array(message.float_data, np.float32), equal_nan=True)
    )


def field(number, wire_type, payload):
    return bytes([number << 3 | wire_type]) + payload


# Fields that Datum has not, in every wire type, and its own in the wrong one or in another form.
ODD = st.sampled_from(
    [
        field(9, 0, b"\x85\x01"),
        field(9, 1, bytes(8)),
        field(9, 2, b"\x03abc"),
        field(9, 3, field(1, 0, b"\x07") + field(2, 3, field(2, 4, b"")) + field(9, 4, b"")),
        field(9, 5, bytes(4)),
        field(1, 2, b"\x01a"),
        field(4, 0, b"\x01"),
        field(6, 2, b"\x08" + np.array([1, 2], "<f4").tobytes()),
        b"\xb5\x00" + np.array([3], "<f4").tobytes(),
        field(7, 0, b"\x80\x80\x04"),
        field(5, 0, b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f"),
    ]
)


@given(messages(), st.lists(ODD, max_size=3), messages())
def test_reads_what_protobuf_reads(first, odd, second):
    value = first.SerializeToString() + b"".join(odd) + second.SerializeToString()
    datum = parse(value)
    assert not datum.damage
    assert same(datum, caffe_pb2.Datum.FromString(value))


@given(messages(), st.data())
def test_refuses_what_protobuf_refuses(message, data):
    value = bytearray(message.SerializeToString() or b"\x08")
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    value = bytes(value[: data.draw(st.integers(1, len(value)))])
    datum = parse(value)
    try:
        expected = caffe_pb2.Datum.FromString(value)
    except DecodeError:
        assert datum.damage
    else:
        assert not datum.damage
        assert same(datum, expected)


@given(st.binary(max_size=60))
@example(b"")
@example(b"\xff" * 12)
@example(b"\x0b" * 150)
def test_never_raises(value):
    parse(value)


def test_keeps_what_comes_before_the_damage():
    message = caffe_pb2.Datum(channels=3, height=2, width=4, data=bytes(24), label=7)
    datum = parse(message.SerializeToString()[:-2] + b"\x07")
    assert datum.shape == (3, 2, 4)
    assert datum.data.size == 24
    assert datum.damage == "no field at byte 32 of 33"


def test_data_is_a_view():
    value = serialize(np.arange(12, dtype=np.uint8).reshape(3, 2, 2), 5)
    datum = parse(memoryview(value))
    assert np.shares_memory(datum.data, np.frombuffer(value, np.uint8))
    assert datum.pixels().tolist() == np.arange(12).reshape(3, 2, 2).tolist()


@given(st.integers(0, 3), st.booleans())
def test_round_trip(extra, as_bytes):
    pixels = np.arange(2 * 3 * (4 + extra), dtype=np.uint8 if as_bytes else np.float32).reshape(2, 3, -1)
    datum = parse(serialize(pixels, -4))
    assert datum.label == -4
    assert datum.pixels().dtype == pixels.dtype
    assert np.array_equal(datum.pixels(), pixels)


def test_too_few_values():
    datum = parse(caffe_pb2.Datum(channels=1, height=2, width=3, data=bytes(5)).SerializeToString())
    with pytest.raises(CheckError, match="A datum of 1 x 2 x 3 has only 5 values in its data"):
        datum.pixels()


def test_pixels_have_three_axes():
    with pytest.raises(ValueError, match="channels, height, width"):
        serialize(np.zeros((2, 2), np.uint8))


@given(messages(), st.integers(0, 400), st.integers(0, 255))
def test_the_fast_look_sees_what_the_library_sees_or_nothing(message, place, byte):
    damaged = bytearray(message.SerializeToString())
    if damaged:
        damaged[place % len(damaged)] = byte
    found = np.zeros(7, np.int64)
    seen = np.frombuffer(bytes(damaged), np.uint8) if damaged else np.empty(0, np.uint8)
    if find_fields(seen, found):
        wanted = caffe_pb2.Datum.FromString(bytes(damaged))
        start, size = found[START], found[SIZE]
        assert found[:ENCODED].tolist() == [getattr(wanted, name) for name in FIELDS]
        assert bool(found[ENCODED]) == wanted.encoded
        assert seen[start : start + size].tobytes() == wanted.data
        assert not wanted.float_data


def test_the_fast_look_sees_what_the_tools_write():
    records = [serialize(np.zeros((3, 4, 5), np.uint8), 7), serialize(np.zeros((3, 300, 500), np.uint8))]
    records.append(caffe_pb2.Datum(encoded=True, label=1000, data=b"jpeg").SerializeToString())
    assert all(find_fields(np.frombuffer(record, np.uint8), np.zeros(7, np.int64)) for record in records)
