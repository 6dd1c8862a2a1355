"""What is watched, and how ``refcaffe trace`` shows it."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.cli.main import main
from refcaffe.cli.trace import build_parser, lines, totals
from refcaffe.cli.trace_svg import drawing
from refcaffe.context import Mode
from refcaffe.device import FakeRuntime
from refcaffe.net.trace import Step, Tracer
from refcaffe.syncedmem import Head, SyncedMemory
from refcaffe.watch import Copy, Turn, Watch, heads
from tests.net.nets import make_net

NET = """
name: "tiny <&>"
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "x" top: "ip"
  inner_product_param { num_output: 2 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "ip" top: "ip" }
layer { name: "loss" type: "Reduction" bottom: "ip" top: "loss" loss_weight: 1 }
"""


@pytest.fixture
def steps(fake: FakeRuntime) -> list[Step]:
    with make_net(NET) as net:
        return Tracer(net, fake).run()


@pytest.fixture
def model(tmp_path: Path) -> str:
    (tmp_path / "net.prototxt").write_text(NET, encoding="utf-8")
    return str(tmp_path / "net.prototxt")


# --- watching


def test_a_watch_names_what_is_copied(fake: FakeRuntime) -> None:
    blob, other = Blob((2, 3)), Blob((2,))
    with Watch(fake) as watch:
        watch.name({"a": blob})
        blob.mutable_cpu_data()
        blob.gpu_data()
        blob.mutable_gpu_diff()
        blob.cpu_diff()
        other.mutable_cpu_data()
        other.gpu_data()
        assert watch.take_copies() == [
            Copy("H2D", 24, "a.data", "a.data", False, False),
            Copy("D2H", 24, "a.diff", "a.diff", False, False),
            Copy("H2D", 8, "internal", "internal", False, False),
        ]
        assert watch.take_copies() == []
    assert fake.record is None


def test_a_watch_tells_what_another_thread_copies(fake: FakeRuntime) -> None:
    blob = Blob((2, 3))
    blob.mutable_cpu_data()
    with Watch(fake) as watch:
        watch.name({"a": blob})
        thread = threading.Thread(target=blob.gpu_data)
        thread.start()
        thread.join()
        assert watch.take_copies() == [Copy("H2D", 24, "internal", "internal", False, True)]


def test_a_blob_that_gets_its_name_after_the_copy_is_found(fake: FakeRuntime) -> None:
    with Watch(fake) as watch:
        blob = Blob((2,))
        blob.mutable_cpu_data()
        blob.gpu_data()
        watch.name({"late": blob})
        assert [copy.source for copy in watch.take_copies()] == ["late.data"]


def test_a_watch_sees_heads_turn_and_puts_everything_back(fake: FakeRuntime) -> None:
    slot = SyncedMemory.head
    blob = Blob((2,))
    with Watch(fake, turns=True) as watch:
        watch.name({"a": blob})
        blob.mutable_cpu_data()
        blob.mutable_cpu_data()  # nothing turns
        blob.gpu_data()
        blob.mutable_gpu_data()
        blob.cpu_diff()
        assert [event for event in watch.take() if isinstance(event, Turn)] == [
            Turn("a.data", "U", "C"),
            Turn("a.data", "C", "S"),
            Turn("a.data", "S", "G"),
            Turn("a.diff", "U", "C"),
        ]
    assert SyncedMemory.head is slot
    assert heads(blob) == "GC"
    assert blob.memories[0].head is Head.HEAD_AT_GPU  # type: ignore[union-attr]


def test_a_watch_ends_with_an_error(fake: FakeRuntime) -> None:
    slot = SyncedMemory.head
    with pytest.raises(ValueError, match="stop"), Watch(fake, turns=True):
        raise ValueError("stop")
    assert SyncedMemory.head is slot
    assert fake.record is None


def test_heads_of_a_blob_without_memory() -> None:
    assert heads(Blob()) == "--"
    assert heads(Blob((3,))) == "UU"


# --- tracing


def test_a_trace_goes_through_all_layers_and_back(steps: list[Step]) -> None:
    assert [(step.what, step.layer) for step in steps] == [
        ("inputs", ""), ("forward", "x"), ("forward", "ip"), ("forward", "relu"), ("forward", "loss"),
        ("clear gradients", ""), ("backward", "loss"), ("backward", "relu"), ("backward", "ip"),
    ]  # fmt: skip
    assert steps[2].kind == "InnerProduct"
    assert {copy.source for copy in steps[2].copies} == {"x.data", "ip[0].data", "ip[1].data", "internal"}
    assert steps[2].heads == {"x": "SU", "ip": "GU", "loss": "UC", "ip[0]": "SU", "ip[1]": "SU"}
    assert not steps[3].events


def test_the_second_pass_uploads_no_parameters(fake: FakeRuntime) -> None:
    with make_net(NET) as net:
        tracer = Tracer(net, fake)
        tracer.run()
        again = [copy.source for step in tracer.run() for copy in step.copies]
    assert again == ["x.data", "internal", "internal", "loss.data"]


def test_a_net_for_testing_has_no_way_back(fake: FakeRuntime) -> None:
    with make_net(NET.replace("loss_weight: 1", "").replace('"Reduction"', '"Softmax"')) as net:
        net.layer_need_backward[:] = [False] * len(net.layer_need_backward)
        assert {step.what for step in Tracer(net, fake).run()} == {"inputs", "forward"}


def test_text_of_a_trace(steps: list[Step]) -> None:
    text = lines(steps)
    at = text.index("forward ip (InnerProduct)")
    assert text[at + 1 : at + 4] == [
        "    H2D         24 bytes  x.data",
        "    C -> S                x.data",
        "    U -> G                ip.data",
    ]
    assert text[-1] == "H2D    7 copies           88 bytes"
    assert totals([]) == ["no copies"]


def test_the_time_line_is_xml_with_a_mark_for_each_step(steps: list[Step]) -> None:
    root = ElementTree.fromstring(drawing("<title> & more", steps))
    space = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{space}text")]
    assert "<title> & more" in texts
    for name in ("↓ ip", "↑ ip", "↓ relu", "inputs", "ip[0].data", "x.diff"):
        assert name in texts
    notes = [element.text or "" for element in root.iter(f"{space}title")]
    assert "H2D, 64 bytes\n24 x.data\n24 ip[0].data\n8 internal\n8 ip[1].data" in notes
    assert "x.data after forward ip: S" in notes
    # One box for each blob's two sides after each step.
    assert sum(" after " in note for note in notes) == 2 * len(steps[0].heads) * len(steps)
    assert ElementTree.fromstring(drawing("empty", [])).tag == f"{space}svg"


# --- the command


def test_the_command_prints_and_draws(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = context.current()
    before = here.mode
    assert main(["trace", "--model", model, "--pass", "2", "-o", str(tmp_path / "trace.svg")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "tiny <&>, TRAIN, pass 2, device fake"
    assert out.splitlines()[-1] == "H2D    4 copies           52 bytes"
    ElementTree.parse(tmp_path / "trace.svg")
    assert here.mode is before


def test_what_the_command_refuses(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--model", str(tmp_path / "none.prototxt")]) == 1
    assert "none.prototxt" in capsys.readouterr().err
    assert main(["trace", "--model", model, "--pass", "0"]) == 1
    assert "the first is 1" in capsys.readouterr().err
    (tmp_path / "bad.prototxt").write_text("layer { type: 7 }", encoding="utf-8")
    assert main(["trace", "--model", str(tmp_path / "bad.prototxt")]) == 1
    assert "bad.prototxt" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        build_parser().parse_args([])


def test_a_net_that_fails_leaves_nothing_watched(fake: FakeRuntime, model: str) -> None:
    with make_net(NET) as net:
        tracer = Tracer(net, fake)
        fake.fail_next("cudaMalloc")
        with pytest.raises(CheckError, match="out of memory"):
            tracer.run()
    assert fake.record is None
    assert context.current().mode is Mode.GPU
