"""Kernels without a compiler: the same results, and a word about it."""

from __future__ import annotations

import logging
import sys
from importlib import import_module
from pkgutil import iter_modules

import numpy as np
import pytest

from refcaffe import kernels
from refcaffe.kernels import compiled as module
from refcaffe.kernels.compiled import Kernel


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
    assert [record.getMessage()[:36] for record in caplog.records] == ["Kernels run in NumPy, some times slo"]


def test_numba_may_be_told_not_to_compile(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    module._compiler.cache_clear()
    assert not module.has_compiler()
    module._compiler.cache_clear()


def test_the_form_in_numpy_runs_instead(no_compiler):
    def double(x):
        x *= 2

    def never(x):
        raise AssertionError

    values = np.arange(4.0)
    module.compiled(plain=double)(never)(values)
    assert values.tolist() == [0, 2, 4, 6]


def test_all_kernels_but_two_over_bytes_have_a_form_in_numpy():
    modules = [import_module(f"refcaffe.kernels.{found.name}") for found in iter_modules(kernels.__path__)]
    found = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Kernel)}
    assert len(found) > 20
    slow = {kernel.__name__ for kernel in found.values() if kernel.plain is kernel._function}
    assert slow == {"find_fields", "_uncompress"}


def test_copied_leaves_the_same_memory_alone():
    values, target = np.arange(4.0), np.zeros(4)
    assert module.copied(values, target) is target
    assert target.tolist() == [0, 1, 2, 3]
    assert module.copied(target[:2], target[:2].reshape(2, 1)).shape == (2, 1)
