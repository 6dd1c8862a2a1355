"""Kernels without a compiler: the same results, and a word about it."""

from __future__ import annotations

import logging
import sys

import numpy as np
import pytest

from refcaffe.kernels import compiled as module
from refcaffe.kernels.im2col import Columns, im2col
from refcaffe.side import HOST


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    module._compiler.cache_clear()
    yield
    module._compiler.cache_clear()


def test_a_kernel_runs_without_numba(no_compiler, caplog):
    def double(x):
        for i in range(len(x)):
            x[i] *= 2

    values = np.arange(4.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            module.compiled(double)(values)
    assert values.tolist() == [0, 4, 8, 12]
    assert [record.getMessage()[:35] for record in caplog.records] == ["Kernels run as plain Python, some h"]


def test_unsigned_places_work_in_plain_python(no_compiler):
    where = Columns(2, (5, 6), (3, 3), (3, 2), (2, 2), (1, 0), (1, 1))
    image = np.arange(60, dtype=np.float32)
    expected, plain = np.empty(where.shape, np.float32), np.empty(where.shape, np.float32)
    im2col(HOST, where, image, expected)
    from refcaffe.kernels.im2col import _im2col

    images, columns = image.reshape(1, *where.image_shape), plain.reshape(2, 3, 2, 1, 3, 3)
    _im2col._function(images, where.rows, *where.step, columns, 0)
    assert (plain == expected).all()


def test_copied_leaves_the_same_memory_alone():
    values, target = np.arange(4.0), np.zeros(4)
    assert module.copied(values, target) is target
    assert target.tolist() == [0, 1, 2, 3]
    assert module.copied(target[:2], target[:2].reshape(2, 1)).shape == (2, 1)
