"""Importing, running scripts as ``caffe``, and the small functions."""

import logging
import subprocess
import sys
import threading

import pytest

import refcaffe
from refcaffe import context


def run(*arguments, cwd, code=0):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


SCRIPT = """
import sys
import caffe
import caffe.draw, caffe.io
import caffe.proto.caffe_pb2
from caffe import layers as L, params as P
from caffe.coord_map import crop
from caffe.io import Transformer
from caffe.net_spec import Top
from caffe.proto import caffe_pb2
import refcaffe, refcaffe.io

assert caffe is refcaffe
assert caffe.io is refcaffe.io and caffe.io.Transformer is Transformer
assert caffe.proto.caffe_pb2 is caffe_pb2
assert isinstance(L.Input(), Top) and P.Pooling.MAX == 0
assert caffe.TRAIN == caffe_pb2.TRAIN == 0 and caffe.TEST == 1
assert caffe.io.__spec__.name == "refcaffe.pycaffe.io"

class Own(caffe.Layer):
    def setup(self, bottom, top): pass
    def reshape(self, bottom, top): top[0].reshape(1)
    def forward(self, bottom, top): top[0].data[0] = 7

open("net", "w").write('''layer { name: "own" type: "Python" top: "out"
  python_param { module: "__main__" layer: "Own" } }''')
print(sys.argv[1:], caffe.Net("net", caffe.TEST).forward()["out"][0], helper if "helper" in globals() else "")
"""


def test_a_script_runs_with_caffe(tmp_path):
    (tmp_path / "here").mkdir()
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + "import beside\n")
    (tmp_path / "beside.py").write_text("import caffe; caffe.Net")
    assert run("-m", "refcaffe", "../script.py", "a", "-b", cwd=tmp_path / "here").split("\n")[0] == "['a', '-b'] 7.0 "
    assert run("-m", "refcaffe", "-m", "script", "c", cwd=tmp_path).startswith("['c'] 7.0")
    run("script.py", cwd=tmp_path, code=1)  # there is no caffe without being asked for


def test_anything_else_is_the_command(tmp_path):
    assert run("-m", "refcaffe", "--version", cwd=tmp_path) == f"refcaffe version {refcaffe.__version__}\n"


def test_another_caffe_is_not_replaced(tmp_path):
    (tmp_path / "caffe.py").write_text("")
    code = "import caffe, refcaffe\ntry: refcaffe.install_as_caffe()\nexcept RuntimeError as error: print(error)"
    assert "another caffe has been imported already: " in run("-c", code, cwd=tmp_path)
    code = "import refcaffe\nrefcaffe.install_as_caffe()\nrefcaffe.install_as_caffe()\n"
    code += "import caffe\nprint(caffe is refcaffe)"
    assert run("-c", code, cwd=tmp_path) == "True\n"


def test_importing_is_cheap(tmp_path):
    code = "import sys, refcaffe\nprint('numpy' in sys.modules)\nrefcaffe.Net, refcaffe.Classifier, refcaffe.draw\n"
    heavy = "('cv2', 'h5py', 'numba', 'lmdb', 'cupy', 'rich', 'matplotlib')"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    assert run("-c", code, cwd=tmp_path) == "False\n[]\n"


def test_every_public_name_is_there():
    for name in dir(refcaffe):
        assert getattr(refcaffe, name) is not None, name
    names = set(dir(refcaffe))
    assert names >= {"Net", "Layer", "Blob", "BlobVec", "NCCL", "Timer", "io", "draw", "layers", "params", "proto"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        refcaffe.nothing


def test_places_among_the_solvers_are_the_threads_own():
    found = []

    def elsewhere():
        refcaffe.set_solver_count(4)
        refcaffe.set_solver_rank(2)
        refcaffe.set_multiprocess(True)
        refcaffe.set_mode_gpu()
        here = context.current()
        found.append((refcaffe.solver_count(), refcaffe.solver_rank(), here.multiprocess, here.mode.name))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [(4, 2, True, "GPU")]
    assert (refcaffe.solver_count(), refcaffe.solver_rank(), context.current().multiprocess) == (1, 0, False)


def test_there_is_no_nccl():
    assert not refcaffe.has_nccl()
    for call in (lambda: refcaffe.NCCL(None, "uid"), refcaffe.NCCL.new_uid):
        with pytest.raises(NotImplementedError, match="NCCL"):
            call()


def test_the_timer(caplog):
    timer = refcaffe.Timer()
    assert timer.ms == 0
    assert "Timer has never been run before reading time." in caplog.text
    timer.start()
    timer.start()
    timer.stop()
    first = timer.ms
    assert 0 < first < 1000
    assert timer.ms == first
    timer.start()
    assert timer.ms > 0


@pytest.fixture
def logger():
    logger = logging.getLogger("refcaffe")
    before = logger.level, logger.propagate, list(logger.handlers)
    yield logger
    logger.setLevel(before[0])
    logger.propagate = before[1]
    logger.handlers[:] = before[2]


def test_the_log(logger, capsys):
    refcaffe.init_log()
    refcaffe.log("100 % done")
    logging.getLogger("refcaffe.net.cpp").warning("look")
    lines = capsys.readouterr().err.splitlines()
    assert [line[0] for line in lines] == ["I", "W"]
    assert lines[0].endswith("] 100 % done")
    assert " _caffe.cpp:" in lines[0]
    for level, stderr, printed in [(1, True, "WE"), (0, True, "IWE"), (0, False, "E"), (3, True, "")]:
        refcaffe.init_log(level, stderr)
        refcaffe.log("x")
        logging.getLogger("refcaffe.net.cpp").warning("x")
        logging.getLogger("refcaffe.net.cpp").error("x")
        assert "".join(line[0] for line in capsys.readouterr().err.splitlines()) == printed
