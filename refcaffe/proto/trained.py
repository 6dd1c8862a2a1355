"""Trained nets whose numbers stay where the file put them.

A large model is nearly all ``blobs.data``. Parsed into messages it would be in memory twice more before it reaches the
parameters; so its numbers are cut out, as arrays that look at the file's bytes, and only the rest is parsed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.proto import caffe_pb2
from refcaffe.proto.binary import bytes_field
from refcaffe.proto.wire import Malformed, Reader

_NET = caffe_pb2.NetParameter.DESCRIPTOR.fields_by_name
_LAYERS = {
    # number of the field in NetParameter -> number of `blobs` in the layer
    _NET["layer"].number: caffe_pb2.LayerParameter.DESCRIPTOR.fields_by_name["blobs"].number,
    _NET["layers"].number: caffe_pb2.V1LayerParameter.DESCRIPTOR.fields_by_name["blobs"].number,
}
_V0_LAYER = (_NET["layers"].number, caffe_pb2.V1LayerParameter.DESCRIPTOR.fields_by_name["layer"].number)
_BLOB = caffe_pb2.BlobProto.DESCRIPTOR.fields_by_name
_DATA, _DOUBLE_DATA = _BLOB["data"].number, _BLOB["double_data"].number
_BYTES = 2  # wire type
_MOST_FIELDS = 1 << 16  # more than any net has: such a file is left to the general parser

Numbers = NDArray[np.float32] | None


class _Cutter:
    def __init__(self) -> None:
        self.numbers: list[Numbers] = []
        self._fields = 0

    def net(self, message: memoryview) -> bytes:
        out = []
        for number, field, value in self._walk(message):
            out.append(bytes_field(number, self._layer(number, value)) if number in _LAYERS and value else field)
        return b"".join(out)

    def _layer(self, kind: int, message: memoryview) -> bytes:
        out = []
        for number, field, value in self._walk(message):
            if (kind, number) == _V0_LAYER:
                raise Malformed("a V0 layer, whose blobs may be dropped")
            out.append(bytes_field(number, self._blob(value)) if number == _LAYERS[kind] and value else field)
            if number == _LAYERS[kind] and not value:
                self.numbers.append(None)
        return b"".join(out)

    def _blob(self, message: memoryview) -> bytes:
        fields = list(self._walk(message))
        data = [value for number, _, value in fields if number == _DATA]
        if len(data) != 1 or data[0] is None or any(number == _DOUBLE_DATA for number, _, _ in fields):
            self.numbers.append(None)
            return bytes(message)
        self.numbers.append(Reader(data[0]).array(len(data[0]), "<f4"))
        return b"".join(field for number, field, _ in fields if number != _DATA)

    def _walk(self, message: memoryview) -> Any:
        """(number, the whole field, its bytes if it is of that kind) of every field."""
        reader = Reader(message)
        while reader.position < reader.end:
            self._fields += 1
            if self._fields > _MOST_FIELDS:
                raise Malformed("too many fields")
            start = reader.position
            number, wire_type = reader.tag()
            value = None
            if wire_type == _BYTES:
                size = reader.size()
                begin = reader.position
                reader.array(size, np.uint8)
                value = message[begin : begin + size]
            else:
                reader.skip(number, wire_type)
            yield number, message[start : reader.position], value


def cut(data: bytes) -> tuple[bytes, list[Numbers]] | None:
    """A serialized NetParameter without ``blobs.data``, and those numbers, one array per blob in order.

    None instead of an array: that blob is left whole. None instead of both: the message is left to the general parser,
    because it is damaged or of a kind that needs it.
    """
    cutter = _Cutter()
    try:
        return cutter.net(memoryview(data)), cutter.numbers
    except Malformed:
        return None
