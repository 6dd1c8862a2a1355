"""The Python layer: the user's class, found by name and called as in pycaffe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers import create
from refcaffe.layers.python import PyLayer
from refcaffe.proto import caffe_pb2

MODULE = """
from refcaffe.layers.python import PyLayer

class Affine(PyLayer):
    def setup(self, bottom, top):
        self.calls = ["setup"]
        self.shift = float(self.param_str or 0)
        self.blobs.add_blob(1)
        self.blobs[0].data[...] = 2

    def reshape(self, bottom, top):
        self.calls.append("reshape")
        top[0].reshape(*bottom[0].shape)

    def forward(self, bottom, top):
        top[0].data[...] = bottom[0].data * self.blobs[0].data + self.shift + 10 * self.phase

    def backward(self, top, propagate_down, bottom):
        self.blobs[0].diff[...] += (top[0].diff * bottom[0].data).sum()
        if propagate_down[0]:
            bottom[0].diff[...] = top[0].diff * self.blobs[0].data

class Fails(PyLayer):
    def setup(self, bottom, top):
        raise KeyError("what the user raised")

class Empty(PyLayer):
    pass

class NoLayer:
    pass
"""


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "module_of_a_user"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / "needs_another.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    for imported in (name, "needs_another"):
        sys.modules.pop(imported, None)


def definition(module: str, layer: str, phase: int = caffe_pb2.TRAIN, **fields: Any) -> Any:
    python_param = {"module": module, "layer": layer, **fields}
    return caffe_pb2.LayerParameter(name="p", type="Python", phase=phase, python_param=python_param)


def set_up(param: caffe_pb2.LayerParameter, dtype: type = np.float32) -> Any:
    layer, bottom, top = create(param, dtype), [Blob((2, 3), dtype)], [Blob(dtype=dtype)]
    bottom[0].data[...] = np.arange(6).reshape(2, 3)
    layer.set_up(bottom, top)
    return layer, bottom, top


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_forward_and_backward(users_module: str, dtype: type) -> None:
    layer, bottom, top = set_up(definition(users_module, "Affine", param_str="0.5"), dtype)
    assert [blob.shape for blob in layer.blobs] == [(1,)]
    assert layer.blobs[0].dtype == dtype
    layer.forward(bottom, top)
    assert layer.instance.calls == ["setup", "reshape", "reshape"]
    assert np.array_equal(top[0].data, bottom[0].data * 2 + 0.5)
    top[0].diff[...] = 1
    layer.backward(top, [False], bottom)
    assert not bottom[0].diff.any()
    layer.backward(top, [True], bottom)
    assert (bottom[0].diff == 2).all()
    assert layer.blobs[0].diff[0] == 30


def test_the_phase_is_known_in_setup(users_module: str) -> None:
    layer, bottom, top = set_up(definition(users_module, "Affine", caffe_pb2.TEST))
    layer.forward(bottom, top)
    assert top[0].data[0, 0] == 10
    assert layer.instance.type == "Python"


def test_given_blobs_are_the_users(users_module: str) -> None:
    param = definition(users_module, "Affine")
    param.blobs.add(shape={"dim": [1]}, data=[7.0])
    layer = create(param)
    assert layer.blobs[0].data[0] == 7
    layer.set_up([Blob((1, 1))], [Blob()])
    assert len(layer.blobs) == 2
    assert layer.instance.blobs is layer.blobs


def test_the_users_exception_goes_through(users_module: str) -> None:
    with pytest.raises(KeyError, match="what the user raised"):
        set_up(definition(users_module, "Fails"))


def test_a_method_that_is_missing_is_named(users_module: str) -> None:
    with pytest.raises(NotImplementedError, match=r"Empty\.setup"):
        set_up(definition(users_module, "Empty"))


@pytest.mark.parametrize(
    ("module", "layer", "kind"),
    [
        ("not_there_at_all", "Any", ImportError),
        ("needs_another", "Any", ImportError),
        ("module_of_a_user", "Missing", AttributeError),
        ("module_of_a_user", "NoLayer", TypeError),
        ("os", "getcwd", TypeError),
    ],
)
def test_errors_name_module_and_class(users_module: str, module: str, layer: str, kind: Any) -> None:
    with pytest.raises(kind) as caught:
        create(definition(module, layer))
    assert f"layer 'p' wants class '{layer}' of module '{module}'" in str(caught.value)


def test_several_solvers_need_processes(users_module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = context.current()
    monkeypatch.setattr(here, "solver_count", 2)
    with pytest.raises(CheckError, match=r"PythonLayer does not support CLI Multi-GPU, use train\.py"):
        set_up(definition(users_module, "Affine"))
    set_up(definition(users_module, "Affine", caffe_pb2.TEST))
    with context.build(reader_era=True):
        with pytest.raises(CheckError, match="PythonLayer is not implemented in Multi-GPU training"):
            set_up(definition(users_module, "Affine"))
        set_up(definition(users_module, "Affine", share_in_parallel=True))
    monkeypatch.setattr(here, "multiprocess", True)
    set_up(definition(users_module, "Affine"))


def test_the_base_class_takes_the_definition() -> None:
    assert isinstance(PyLayer(caffe_pb2.LayerParameter()), PyLayer)
