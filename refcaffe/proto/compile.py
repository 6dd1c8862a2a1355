"""Compiles ``caffe.proto`` to the descriptor file beside it: ``python -m refcaffe.proto.compile``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

SOURCE = Path(__file__).with_name("caffe.proto")
TARGET = Path(__file__).with_name("caffe_descriptor.binpb")


def compiled(source: Path = SOURCE) -> bytes:
    """The serialised FileDescriptorProto of ``source``.

    Raises ModuleNotFoundError without grpcio-tools, ValueError if ``source`` is not valid.
    """
    try:
        from grpc_tools import protoc
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "compiling caffe.proto needs grpcio-tools, which the 'dev' extra of refcaffe brings"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder, "set")
        if protoc.main(["protoc", f"-I{source.parent}", f"--descriptor_set_out={target}", source.name]):
            raise ValueError(f"{source} is not valid: see the compiler's messages above")
        file: FileDescriptorProto = FileDescriptorSet.FromString(target.read_bytes()).file[0]
    for message in file.message_type:
        for field in message.field:
            field.ClearField("json_name")  # derived from the name; not every compiler writes it
    return file.SerializeToString(deterministic=True)


def main() -> int:
    """Write the descriptor file; 1 if that is not possible."""
    try:
        TARGET.write_bytes(compiled())
    except (ModuleNotFoundError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"wrote {TARGET}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
