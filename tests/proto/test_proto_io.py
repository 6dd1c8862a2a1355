"""Messages in files: what is read, what is refused with which message, and that nothing is half written."""

from __future__ import annotations

import json
import os
import pickle
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from refcaffe.checks import CheckError
from refcaffe.proto import caffe_pb2, io

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = json.loads(Path(__file__).with_name("protobuf_cases.json").read_text(encoding="utf-8"))
NET, SOLVER, BLOB = caffe_pb2.NetParameter, caffe_pb2.SolverParameter, caffe_pb2.BlobProto


def _refused(read: Callable[..., Any], path: Any, message_class: Any) -> CheckError:
    with pytest.raises(CheckError) as caught:
        read(path, message_class)
    return caught.value


def _net() -> Any:
    net = NET(name="n")
    net.layer.add(name="ip", type="InnerProduct", top=["ip"]).inner_product_param.num_output = 3
    net.layer[0].blobs.add(data=[0.1, -2, 1e10]).shape.dim.append(3)
    return net


# -- what Caffe says


def _recorded() -> list[Any]:
    found = []
    for path in sorted((FIXTURES / "error" / "parse").glob("*/case.json")):
        case = json.loads(path.read_text(encoding="utf-8"))
        fatal = case["recorded"].get("fatal")
        if fatal and fatal["file"] != "net.cpp":
            step = case["given"]["ops"][fatal["op"]]
            words = [line for _, _, line in case["recorded"]["parser"]]
            found.append(pytest.param(path.parent, step, fatal, words, id=path.parent.name))
    return found


@pytest.mark.skipif(not FIXTURES.exists(), reason="the recorded cases are not here")
@pytest.mark.parametrize(("folder", "step", "fatal", "words"), _recorded())
def test_recorded_refusals(
    folder: Path, step: dict[str, Any], fatal: Any, words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    name = fatal["message"].rsplit(maxsplit=1)[1]
    if step["op"] == "copy_from":
        error = _refused(io.read_binary, name, NET)
    else:
        error = _refused(io.read_text, name, NET if step["op"] == "net" else SOLVER)
    assert (error.message, error.file) == (fatal["message"], fatal["file"])
    assert getattr(error, "complaints", []) == words


def test_the_context_names_file_line_column_field_and_shows_the_line(tmp_path: Path) -> None:
    path = tmp_path / "net.prototxt"
    path.write_text('name: "n"\nlayer { }\nlayer {\n  convolution_param { pad: 1 pad: -1 }\n}\n')
    error = _refused(io.read_text, path, NET)
    assert str(error).split("\n  ") == [
        f"Check failed: ReadProtoFromTextFile(param_file, param) Failed to parse NetParameter file: {path}",
        "Error parsing text-format caffe.NetParameter: 4:35: Expected integer, got: -",
        f"{path}, line 4, column 35, field layer[1].convolution_param.pad[1]: convolution_param {{ pad: 1 pad: -1 }}",
    ]


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("layer { nme: 1 }", "layer[0].nme"),
        ("layer {} layer 5", "layer[1]"),
        ("state { phase: DREAM }", "state.phase"),
        ("input_shape { dim: [1, 2, x] }", "input_shape[0].dim[2]"),
        ("layer { clip_param { min: 1 } }", "layer[0].clip_param.max"),
    ],
)
def test_the_context_names_the_field(text: str, field: str) -> None:
    with pytest.raises(io.ParseError) as caught:
        io.parse_text(text, NET, "given")
    assert f"field {field}" in caught.value.where[-1]
    assert caught.value.where[-1].startswith("given, ")


@pytest.mark.parametrize(
    ("message_class", "message", "file"),
    [
        (NET, "(param_file, param) Failed to parse NetParameter file: {}", "upgrade_proto.cpp"),
        (SOLVER, "(param_file, param) Failed to parse SolverParameter file: {}", "upgrade_proto.cpp"),
        (BLOB, "(filename, proto) ", "io.hpp"),
    ],
)
def test_each_class_has_its_message(tmp_path: Path, message_class: Any, message: str, file: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"?\xff\xff")
    for read, form in ((io.read_text, "Text"), (io.read_binary, "Binary")):
        error = _refused(read, path, message_class)
        assert error.message == f"Check failed: ReadProtoFrom{form}File{message.format(path)}"
        assert error.file == file
        assert isinstance(error, io.ParseError)


@pytest.mark.parametrize("read", [io.read_text, io.read_binary])
def test_a_missing_file(tmp_path: Path, read: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("none", "", "file/inside", "a\0b"):
        (tmp_path / "file").touch()
        error = _refused(read, name, NET)
        assert error.message == f"Check failed: fd != -1 (-1 vs. -1) File not found: {name}"
        assert error.file == "io.cpp"
        assert not isinstance(error, io.ParseError)


@pytest.mark.parametrize("read", [io.read_text, io.read_binary])
def test_a_folder_and_an_empty_file(tmp_path: Path, read: Callable[..., Any]) -> None:
    error = _refused(read, tmp_path, NET)
    assert error.message.endswith(f"Failed to parse NetParameter file: {tmp_path}")
    assert error.where == [f"{tmp_path} is a folder"]
    (tmp_path / "empty").touch()
    assert read(tmp_path / "empty", NET) == NET()


def test_a_parse_error_is_pickled_whole() -> None:
    with pytest.raises(io.ParseError) as caught:
        io.parse_text("x", NET, "given")
    twin = pickle.loads(pickle.dumps(caught.value))
    assert (str(twin), twin.complaints) == (str(caught.value), caught.value.complaints)


# -- binary


@pytest.mark.parametrize("case", CASES["binary"], ids=range(len(CASES["binary"])))
def test_binary_is_taken_or_refused_as_recorded(tmp_path: Path, case: Any) -> None:
    name, data, printed, logged = case
    path = tmp_path / "x"
    path.write_bytes(bytes.fromhex(data))
    message_class = getattr(caffe_pb2, name)
    if printed is None:
        error = _refused(io.read_binary, path, message_class)
        assert isinstance(error, io.ParseError)
        assert error.complaints == logged
        assert any(str(path) in line for line in error.where)
    else:
        assert io.to_text(io.read_binary(path, message_class)) == printed


def test_every_truncation_is_read_to_the_end_or_refused(tmp_path: Path) -> None:
    data = _net().SerializeToString()
    path = tmp_path / "w.caffemodel"
    for length in range(len(data)):
        path.write_bytes(data[:length])
        if length in (0, len(NET(name="n").SerializeToString())):
            io.read_binary(path, NET)
        else:
            error = _refused(io.read_binary, path, NET)
            assert f"{path}, {length} bytes: not a caffe.NetParameter" in error.where


@given(st.binary(max_size=80))
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_give_a_message_or_a_parse_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    try:
        message = io.read_binary(path, NET)
    except io.ParseError:
        return
    io.to_text(message)


def test_the_size_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x"
    io.write_binary(_net(), path)
    size = path.stat().st_size
    monkeypatch.setattr(io, "_MOST_BYTES", size)
    assert io.read_binary(path, NET) == _net()
    io.write_binary(_net(), path)
    monkeypatch.setattr(io, "_MOST_BYTES", size - 1)
    assert "larger than 2 GB" in str(_refused(io.read_binary, path, NET))
    with pytest.raises(CheckError, match=r"Check failed: proto.SerializeToOstream\(&output\)"):
        io.write_binary(_net(), path)
    assert path.stat().st_size == size


# -- writing


WRITE = [(io.write_text, io.read_text), (io.write_binary, io.read_binary)]


@pytest.mark.parametrize(("write", "read"), WRITE)
def test_what_is_written_is_read(tmp_path: Path, write: Any, read: Any) -> None:
    path = tmp_path / "net"
    path.write_text("what was there before")
    old = os.umask(0o027)
    try:
        write(_net(), path)
        write(_net(), str(tmp_path / "new"))
    finally:
        os.umask(old)
    assert read(path, NET) == read(str(tmp_path / "new"), NET) == _net()
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640
    assert sorted(file.name for file in tmp_path.iterdir()) == ["net", "new"]


def test_a_message_that_lacks_required_fields_is_written(tmp_path: Path) -> None:
    net = NET()
    net.layer.add().clip_param.min = 1
    io.write_binary(net, tmp_path / "b")
    io.write_text(net, tmp_path / "t")
    missing = "missing required fields: layer[0].clip_param.max"
    assert missing in str(_refused(io.read_binary, tmp_path / "b", NET))
    assert missing in str(_refused(io.read_text, tmp_path / "t", NET))


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize(("write", "read"), WRITE)
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, write: Any, read: Any
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "net"
    write(_net(), path)
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(CheckError) as caught:
        write(NET(name="other"), path)
    assert caught.value.message.startswith("Check failed: ")
    assert caught.value.file == "io.cpp"
    assert caught.value.where == [f"{path} could not be written: No space left on device"]
    assert read(path, NET) == _net()
    assert [file.name for file in tmp_path.iterdir()] == ["net"]


def test_an_interrupt_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with io.replacing(tmp_path / "x") as file:
            file.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [io.write_text, io.write_binary])
def test_where_nothing_can_be_written(tmp_path: Path, write: Any) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none" / "x", tmp_path / "file" / "x", tmp_path, "a\0b"):
        with pytest.raises(CheckError, match="could not be written"):
            write(_net(), path)
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_links_are_followed_and_devices_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "net")
    io.write_text(_net(), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert io.read_text(tmp_path / "folder" / "net", NET) == _net()
    io.write_binary(_net(), os.devnull)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


# -- any message


def _value(field: Any) -> st.SearchStrategy[Any]:
    if field.message_type:
        return _content(field.message_type)
    if field.enum_type:
        return st.sampled_from([value.number for value in field.enum_type.values])
    bits = {field.TYPE_INT32: 31, field.TYPE_UINT32: 32, field.TYPE_INT64: 63, field.TYPE_UINT64: 64}
    if field.type in bits:
        signed = bits[field.type] % 2
        return st.integers(-signed * 2 ** bits[field.type], 2 ** bits[field.type] - 1)
    return {
        field.TYPE_FLOAT: st.floats(width=32, allow_nan=False),
        field.TYPE_DOUBLE: st.floats(allow_nan=False),
        field.TYPE_BOOL: st.booleans(),
        field.TYPE_STRING: st.text(max_size=8),
        field.TYPE_BYTES: st.binary(max_size=8),
    }[field.type]


@st.composite
def _content(draw: st.DrawFn, descriptor: Any) -> dict[str, Any]:
    required = [field for field in descriptor.fields if descriptor.full_name == "caffe.ClipParameter"]
    chosen = required or draw(st.lists(st.sampled_from(list(descriptor.fields)), max_size=3, unique=True))
    content = {}
    for field in chosen:
        many = st.lists(_value(field), min_size=1, max_size=3)
        content[field.name] = draw(_value(field) if field.has_presence else many)
    return content


@pytest.mark.parametrize("message_class", [NET, SOLVER, BLOB, caffe_pb2.Datum, caffe_pb2.SolverState])
@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_any_message_survives_text_and_binary(tmp_path: Path, message_class: Any, data: st.DataObject) -> None:
    message = message_class(**data.draw(_content(message_class.DESCRIPTOR)))
    text, binary = tmp_path / "text", tmp_path / "binary"
    io.write_text(message, text)
    io.write_binary(message, binary)
    assert io.read_text(text, message_class) == message == io.read_binary(binary, message_class)
    assert binary.read_bytes() == message.SerializeToString()
