"""The schema itself: the compiled descriptor, the classes made of it, and the pool they live in."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from refcaffe.proto import caffe_pb2, compile

SCHEMA = json.loads(Path(__file__).parents[1].joinpath("data/caffe_schema.json").read_text())
LABELS = {1: "optional", 2: "required", 3: "repeated"}


def _python(script: str, **environment: str) -> str:
    """What ``script`` prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _default(field: Any, kind: str) -> Any:
    text = field.default_value
    if kind in ("float", "double"):
        return caffe_pb2.FillerParameter(value=float(text)).value
    if kind == "bool":
        return text == "true"
    return int(text) if kind.startswith(("int", "uint")) else text


def _described(field: FieldDescriptorProto) -> dict[str, Any]:
    kind = field.type_name.removeprefix(".caffe.") or FieldDescriptorProto.Type.Name(field.type)[5:].lower()
    described = {"name": field.name, "number": field.number, "label": LABELS[field.label], "type": kind}
    if field.HasField("default_value"):
        described["default"] = _default(field, kind)
    if field.options.packed:
        described["packed"] = True
    return described


def _schema() -> dict[str, Any]:
    """The loaded schema in the form of ``caffe_schema.json``."""
    file = FileDescriptorProto.FromString(caffe_pb2.DESCRIPTOR.serialized_pb)
    messages = {}
    for message in file.message_type:
        described: dict[str, Any] = {"fields": [_described(field) for field in message.field]}
        if message.enum_type:
            described["enums"] = {
                enum.name: {value.name: value.number for value in enum.value} for enum in message.enum_type
            }
        messages[message.name] = described
    enums = {enum.name: {value.name: value.number for value in enum.value} for enum in file.enum_type}
    return {"package": file.package, "syntax": "proto2", "enums": enums, "messages": messages}


def _by_name(schema: dict[str, Any]) -> dict[str, Any]:
    """The same with each message's fields by name: their order in the file means nothing."""
    messages = {
        name: {**message, "fields": {field["name"]: field for field in message["fields"]}}
        for name, message in schema["messages"].items()
    }
    return {**schema, "messages": messages}


def test_every_message_field_and_enum_is_the_recorded_one() -> None:
    assert _by_name(_schema()) == _by_name(SCHEMA)


def test_no_message_has_what_the_recorded_schema_cannot_say() -> None:
    file = FileDescriptorProto.FromString(caffe_pb2.DESCRIPTOR.serialized_pb)
    assert not file.extension
    assert not file.service
    for message in file.message_type:
        rest = FileDescriptorProto(message_type=[message]).message_type[0]
        for known in ("name", "field", "enum_type"):
            rest.ClearField(known)
        assert not rest.ListFields()
        assert all(field.type != FieldDescriptorProto.TYPE_GROUP for field in message.field)


def test_no_message_contains_itself() -> None:
    """The text parser relies on it: the schema bounds how deep a text can nest."""

    def walk(descriptor: Any, above: tuple[str, ...]) -> None:
        assert descriptor.full_name not in above
        for field in descriptor.fields:
            if field.message_type:
                walk(field.message_type, (*above, descriptor.full_name))

    for descriptor in caffe_pb2.DESCRIPTOR.message_types_by_name.values():
        walk(descriptor, ())


@pytest.mark.skipif(not importlib.util.find_spec("grpc_tools"), reason="grpcio-tools is not installed")
def test_the_descriptor_file_is_what_the_compiler_makes() -> None:
    assert FileDescriptorProto.FromString(compile.compiled()) == FileDescriptorProto.FromString(
        compile.TARGET.read_bytes()
    )


@pytest.mark.skipif(not importlib.util.find_spec("grpc_tools"), reason="grpcio-tools is not installed")
def test_compile_writes_the_file_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile, "TARGET", tmp_path / "out.binpb")
    assert compile.main() == 0
    assert FileDescriptorProto.FromString((tmp_path / "out.binpb").read_bytes()).package == "caffe"
    broken = tmp_path / "broken.proto"
    broken.write_text("message {")
    with pytest.raises(ValueError, match=r"broken\.proto is not valid"):
        compile.compiled(broken)
    assert "broken.proto" in capfd.readouterr().err


def test_compile_without_grpc_tools_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "grpc_tools", None)
    assert compile.main() == 1
    assert "'dev' extra" in capsys.readouterr().err


def test_names_are_those_of_a_generated_module() -> None:
    assert (caffe_pb2.TRAIN, caffe_pb2.TEST) == (0, 1)
    assert caffe_pb2.Phase.Name(1) == "TEST"
    assert caffe_pb2.Phase.Value("TRAIN") == 0
    assert caffe_pb2.SolverParameter.SolverMode.Value("GPU") == caffe_pb2.SolverParameter.GPU == 1
    assert caffe_pb2.V1LayerParameter.LayerType.items()[1] == ("ABSVAL", 35)
    assert {*SCHEMA["messages"], *SCHEMA["enums"], "DESCRIPTOR"} <= {*dir(caffe_pb2)}
    assert caffe_pb2.NetParameter.__module__ == "refcaffe.proto.caffe_pb2"
    assert caffe_pb2.LayerParameter(name="a", phase=caffe_pb2.TEST).name == "a"


def test_messages_are_copied_and_pickled() -> None:
    net = caffe_pb2.NetParameter(name="n")
    net.layer.add(name="c").clip_param.min = 1  # incomplete: max is required
    for twin in (copy.copy(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert twin == net
        assert twin is not net
    assert pickle.loads(pickle.dumps(caffe_pb2.NetParameter)) is caffe_pb2.NetParameter


CONFLICT = """
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    def theirs():
        file = descriptor_pb2.FileDescriptorProto(name="caffe.proto", package="caffe", syntax="proto2")
        for message in ("BlobProto", "NetParameter", "V2LayerParameter"):
            file.message_type.add(name=message).field.add(name="other", number=1, label=1, type=9)
        file.enum_type.add(name="Phase").value.add(name="DREAM", number=7)
        pool = descriptor_pool.Default()
        described = pool.AddSerializedFile(file.SerializeToString())
        return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.BlobProto"))

    def ours():
        from refcaffe.proto import caffe_pb2
        return caffe_pb2.BlobProto
"""


@pytest.mark.parametrize("first", ["theirs", "ours"])
@pytest.mark.parametrize("implementation", ["upb", "python"])
def test_another_caffe_proto_in_the_same_process_does_not_clash(first: str, implementation: str) -> None:
    second = {"theirs": "ours", "ours": "theirs"}[first]
    script = textwrap.dedent(CONFLICT) + textwrap.dedent(f"""
        classes = dict({first}={first}())
        classes["{second}"] = {second}()
        assert classes["theirs"](other="x").SerializeToString() == b"\\n\\1x"
        blob = classes["ours"](num=3, data=[1.5])
        assert classes["ours"].FromString(blob.SerializeToString()) == blob
        assert classes["theirs"].DESCRIPTOR.full_name == blob.DESCRIPTOR.full_name == "caffe.BlobProto"
        from refcaffe.proto import caffe_pb2
        assert caffe_pb2.Phase.keys() == ["TRAIN", "TEST"]
        print("both")
    """)
    assert _python(script, PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=implementation) == "both\n"


def test_the_default_pool_is_left_alone() -> None:
    script = """
        from google.protobuf import descriptor_pool
        from refcaffe.proto import caffe_pb2
        try:
            descriptor_pool.Default().FindFileByName("caffe.proto")
        except KeyError:
            print("absent")
    """
    assert _python(script) == "absent\n"


def test_loading_is_fast() -> None:
    spec = importlib.util.find_spec("refcaffe.proto.caffe_pb2")
    assert spec is not None
    assert spec.loader is not None
    times = []
    for _ in range(5):
        module = importlib.util.module_from_spec(spec)
        start = time.perf_counter()
        spec.loader.exec_module(module)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.03
