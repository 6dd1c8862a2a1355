"""Text in and out, held against what C++ protobuf takes, refuses, says and prints."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe.proto import caffe_pb2
from refcaffe.proto.binary import decode
from refcaffe.proto.io import ParseError, parse_text
from refcaffe.proto.text_parser import TextParser, single
from refcaffe.proto.text_printer import double_text, float_text, to_text

ROOT = Path(__file__).parents[2]
CASES = json.loads(Path(__file__).with_name("protobuf_cases.json").read_text(encoding="utf-8"))
UPGRADED = sorted((ROOT / "fixtures" / "upgrade").rglob("out/upgraded.prototxt"))


@pytest.mark.parametrize("case", CASES["text"], ids=range(len(CASES["text"])))
def test_text_is_taken_or_refused_in_the_recorded_words(case: Any) -> None:
    name, text, printed, logged = case
    message = getattr(caffe_pb2, name)()
    parser = TextParser(text.encode("latin-1"))
    assert parser.parse(message) == (printed is not None)
    assert [complaint.text for complaint in parser.complaints] == logged
    if printed is not None:
        assert to_text(message) == printed


@pytest.mark.parametrize("case", CASES["binary"], ids=range(len(CASES["binary"])))
def test_unknown_fields_are_printed_as_recorded(case: Any) -> None:
    name, data, printed, _ = case
    if printed is not None:
        assert to_text(decode(bytes.fromhex(data), getattr(caffe_pb2, name))) == printed


@pytest.mark.skipif(not UPGRADED, reason="the recorded cases are not here")
@pytest.mark.parametrize("path", UPGRADED, ids=lambda path: "/".join(path.parts[-4:-2]))
def test_what_caffe_printed_is_printed_again(path: Path) -> None:
    kind = caffe_pb2.SolverParameter if "solver" in path.parts else caffe_pb2.NetParameter
    text = path.read_bytes()
    assert to_text(parse_text(text, kind, "upgraded")).encode() == text


def _logged_solvers() -> list[Any]:
    found = []
    for path in sorted((ROOT / "fixtures" / "solver").rglob("case.json")):
        for words in json.loads(path.read_text(encoding="utf-8"))["recorded"].get("log", []):
            head, _, text = words[-1].partition("Initializing solver from parameters: \n")
            if text and not head:
                found.append(pytest.param(path.parent, text, id="/".join(path.parts[-3:-1])))
    return found


@pytest.mark.skipif(not UPGRADED, reason="the recorded cases are not here")
@pytest.mark.parametrize(("folder", "logged"), _logged_solvers())
def test_solvers_are_printed_as_caffe_logged_them(folder: Path, logged: str) -> None:
    printed = to_text(parse_text(logged, caffe_pb2.SolverParameter, "log"))
    assert printed.rstrip("\n") == logged.rstrip("\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (1e-5, "1e-05"),
        (1e10, "1e+10"),
        (100000, "100000"),
        (1e6, "1e+06"),
        (-0.0, "-0"),
        (1 / 3, "0.333333343"),
        (16777217, "16777216"),
        (1.17549435e-38, "1.17549435e-38"),
        (1e-45, "1.40129846e-45"),
        (3.4028235e38, "3.40282347e+38"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
        (-math.nan, "nan"),
    ],
)
def test_floats_are_printed_as_short_as_they_can_be(value: float, text: str) -> None:
    assert float_text(single(value)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e15, "1e+15"),
        (5e-324, "4.94065645841247e-324"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_doubles_are_printed_as_short_as_they_can_be(value: float, text: str) -> None:
    assert double_text(value) == text


@given(st.floats(width=32, allow_nan=False))
@settings(max_examples=200, deadline=None)
def test_printed_floats_are_read_back_exactly(value: float) -> None:
    assert single(float(float_text(value))) == value


@pytest.mark.parametrize(
    ("value", "rounded"),
    [
        (3.4028235677973366e38, 3.4028234663852886e38),
        (-3.4028235677973366e38, -3.4028234663852886e38),
        (3.402823567797337e38, math.inf),
        (-1e300, -math.inf),
        (math.inf, math.inf),
        (1e-60, 0.0),
    ],
)
def test_doubles_beyond_floats_become_the_nearest_or_infinity(value: float, rounded: float) -> None:
    assert single(value) == rounded


def test_a_string_that_is_not_utf8_is_kept_byte_by_byte() -> None:
    text = b'name: "caf\xe9" layer { name: "\\377" top: ["a", "\xe9", "b"] }'
    net = parse_text(text, caffe_pb2.NetParameter, "latin")
    assert net.SerializeToString() == b"\n\4caf\xe9\xa2\6\x0c\n\1\xff\x22\1a\x22\1\xe9\x22\1b"
    assert parse_text(to_text(net), caffe_pb2.NetParameter, "again") == net
    with pytest.raises(ParseError, match='Non-repeated field "name" is specified multiple times'):
        parse_text(b'name: "\xe9" name: "a"', caffe_pb2.NetParameter, "twice")


def test_without_protobufs_compiled_part_such_a_string_is_refused() -> None:
    script = """
from refcaffe.proto import caffe_pb2, io
text = 'name: "n" layer { name: "a" loss_weight: 0.1 blobs { shape { dim: 2 } } }'
net = io.parse_text(text, caffe_pb2.NetParameter, "x")
assert io.parse_text(io.to_text(net), caffe_pb2.NetParameter, "x") == net
try:
    io.parse_text(b'name: "\\xe9"', caffe_pb2.NetParameter, "x")
except io.ParseError as error:
    print(error.complaints)
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert 'String field "name" contains invalid UTF-8.' in done.stdout, done.stderr


HOSTILE = {
    "nested": b"layer {" * 100_000,
    "nested lists": b"layer: [{ layer: [{ " * 100_000,
    "angles": b"<" * 100_000,
    "brackets": b"[" * 100_000,
    "quotes": b"name: " + b'"' * 99_999,
    "escapes": b'name: "' + rb"\q" * 100_000 + b'"',
    "control": b"\0a" * 100_000,
    "digits": b"input_dim: " + b"9" * 1_000_000,
    "hexadecimal": b"input_dim: 0x" + b"f" * 1_000_000,
    "wrong octals": b"input_dim: [" + b"08," * 100_000,
    "long name": b"a" * 1_000_000,
    "high bytes": b"\xff" * 100_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_refused_at_once(text: bytes) -> None:
    start = time.process_time()
    with pytest.raises(ParseError) as caught:
        parse_text(text, caffe_pb2.NetParameter, "hostile")
    assert len(caught.value.complaints) <= 20
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"loss_weight: " + b"9" * 100_000, math.inf),
        (b"loss_weight: ." + b"0" * 100_000 + b"1", 0.0),
        (b"# " * 100_000 + b"\n loss_weight: 1", 1.0),
        (b"#\n" * 100_000 + b" loss_weight: 1", 1.0),
        (b'loss_weight: 1 name: "' + rb"\n" * 100_000 + b'"', 1.0),
        (b"loss_weight: 1 name: " + b'"a"' * 50_000, 1.0),
    ],
    ids=range(6),
)
def test_long_but_sound_text_is_read(text: bytes, value: float) -> None:
    assert parse_text(text, caffe_pb2.LayerParameter, "long").loss_weight == [value]


@given(st.binary(max_size=60) | st.text(alphabet="layer{}[]<>:;,\"'\\x0u1.e-+f# \n\t", max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_gives_a_message_or_a_parse_error(text: str | bytes) -> None:
    try:
        net = parse_text(text, caffe_pb2.NetParameter, "any")
    except ParseError:
        return
    assert parse_text(to_text(net), caffe_pb2.NetParameter, "again") == net
