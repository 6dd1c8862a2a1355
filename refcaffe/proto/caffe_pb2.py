"""The message classes of ``caffe.proto``, named as in a generated ``caffe_pb2``.

They live in a descriptor pool of their own: another package in the same process may bring its own
``caffe.proto`` with other fields, and neither disturbs the other.
"""

from __future__ import annotations

import copyreg as _copyreg
from pathlib import Path as _Path
from typing import Any as _Any

from google.protobuf import descriptor_pool as _descriptor_pool
from google.protobuf import message_factory as _message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper as _EnumTypeWrapper


def _restored(name: str, data: bytes) -> _Any:
    return globals()[name].FromString(data)


def _reduced(message: _Any) -> tuple[_Any, tuple[str, bytes]]:
    return _restored, (type(message).__name__, message.SerializePartialToString())


DESCRIPTOR = _descriptor_pool.DescriptorPool().AddSerializedFile(
    _Path(__file__).with_name("caffe_descriptor.binpb").read_bytes()
)

for _name, _descriptor in DESCRIPTOR.message_types_by_name.items():
    _class = _message_factory.GetMessageClass(_descriptor)
    _class.__module__ = __name__
    _copyreg.pickle(_class, _reduced)  # messages of a private pool cannot be found by name otherwise
    globals()[_name] = _class

for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = _EnumTypeWrapper(_enum)
    globals().update((_value.name, _value.number) for _value in _enum.values)
