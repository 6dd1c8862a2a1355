"""What a failed check looks like, the tools of Caffe, and where the log goes."""

import logging
import os
import re
import sys

import pytest

from refcaffe import device
from refcaffe.cli.main import main

GLOG = re.compile(r"[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ [\w.]+:\d+\] .*")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_fatal_line_says_where_it_happened(folder, capsys):
    (folder / "net.prototxt").write_text('layer { name: "a" type: "Nope" top: "x" }')
    (folder / "solver.prototxt").write_text('net: "net.prototxt"')
    assert main(["train", "--solver=solver.prototxt"]) == 134
    lines = capsys.readouterr().err.splitlines()
    fatal = next(i for i, line in enumerate(lines) if line.startswith("F"))
    assert GLOG.fullmatch(lines[fatal])
    assert "Unknown layer type: Nope (known types: AbsVal" in lines[fatal]
    assert all(line.startswith("    @ ") for line in lines[fatal + 1 :])


def test_what_the_parser_says_comes_first(folder, capsys):
    (folder / "solver.prototxt").write_text("base_lr: {")
    assert main(["train", "--solver=solver.prototxt"]) == 134
    first, second, *rest = capsys.readouterr().err.splitlines()
    assert first == (
        "[libprotobuf ERROR google/protobuf/text_format.cc] Error parsing text-format caffe.SolverParameter: "
        "1:10: Expected double, got: {"
    )
    assert second.endswith("Failed to parse SolverParameter file: solver.prototxt")
    assert rest
    assert all(line.startswith("    @ ") for line in rest)


@pytest.mark.parametrize(
    ("gpu", "message"),
    [
        ("0,", "--gpu: '0,' is not a list of device numbers"),
        ("1_0", "--gpu: '1_0' is not a list of device numbers"),
        ("all", "Cannot use GPU in CPU-only Caffe: check mode."),
    ],
)
def test_gpu_must_be_numbers(folder, gpu, message, capsys):
    (folder / "solver.prototxt").write_text('net: "net.prototxt"')
    with device.use("cpu"):
        assert main(["train", "--solver=solver.prototxt", f"--gpu={gpu}"]) == 134
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["test", "--model=none", "--weights=w"],
        ["time", "--model=none"],
        ["extract_features", "w", "none", "fc", "features", "1", "lmdb"],
    ],
)
def test_a_net_that_is_not_there_is_fatal(folder, capsys, words):
    assert main(words) == 134
    assert "File not found: none" in capsys.readouterr().err


def test_upgrade_tools(folder, capsys):
    (folder / "old").write_text('layers { name: "r" type: RELU bottom: "a" top: "b" }')
    assert main(["upgrade_net_proto_text", "old", "new"]) == 0
    assert (folder / "new").read_text() == 'layer {\n  name: "r"\n  type: "ReLU"\n  bottom: "a"\n  top: "b"\n}\n'
    assert main(["upgrade_net_proto_text", "new", "newer"]) == 0
    assert (folder / "newer").read_bytes() == (folder / "new").read_bytes()
    assert "File already in latest proto format: new" in capsys.readouterr().err


def test_upgrade_tools_that_cannot(folder, capsys):
    (folder / "bad").write_text("name: 1")
    for words, status, message in [
        (["upgrade_net_proto_text", "bad"], 1, "Usage: upgrade_net_proto_text v0_net_proto_file_in net_proto_file_out"),
        (["upgrade_net_proto_text", "bad", "new"], 2, "Failed to parse input text file as NetParameter: bad"),
        (["upgrade_net_proto_binary", "bad", "new"], 2, "Failed to parse input binary file as NetParameter: bad"),
        (["upgrade_solver_proto_text", "bad", "new"], 2, "Failed to parse input text file as SolverParameter: bad"),
        (["upgrade_solver_proto_text", "none", "new"], 134, "File not found: none"),
    ]:
        assert main(words) == status
        assert message in capsys.readouterr().err
    assert not (folder / "new").exists()


def test_log_folder_and_level(folder, capsys, monkeypatch):
    (folder / "logs").mkdir()
    assert main(["fly", "--log_dir=logs"]) == 134
    said = [line for line in capsys.readouterr().err.splitlines() if GLOG.fullmatch(line)]
    log = (folder / "logs" / "caffe.INFO").read_text().splitlines()
    assert log[3:] == said
    assert len(os.listdir("logs")) == 2
    monkeypatch.setenv("GLOG_minloglevel", "3")
    assert main(["fly", "--log_dir=none"]) == 134
    could_not, fatal = capsys.readouterr().err.splitlines()
    assert could_not == "Could not create logging file: No such file or directory"
    assert fatal.startswith("F")


def test_a_command_leaves_the_process_as_it_was(folder, monkeypatch):
    def state():
        logger = logging.getLogger("refcaffe")
        return logger.level, logger.propagate, list(logger.handlers), sys.modules.get("caffe"), list(sys.meta_path)

    before = state()
    (folder / "layers.py").write_text(
        "import caffe.io\nclass L(caffe.Layer):\n    def setup(self, b, t): raise KeyError\n"
    )
    layer = 'layer { name: "p" type: "Python" top: "x" python_param { module: "layers" layer: "L" } }'
    (folder / "net.prototxt").write_text(layer)
    monkeypatch.syspath_prepend(folder)
    with pytest.raises(KeyError):
        main(["time", "--model=net.prototxt"])
    del sys.modules["layers"]
    assert state() == before
    assert not [name for name in sys.modules if name.startswith("caffe")]
