"""What holds for all tests."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings

from refcaffe import context, device

# Examples are drawn anew from a fixed seed, and none fails for being slow on a busy machine.
settings.register_profile("refcaffe", deadline=None, derandomize=True)
settings.load_profile("refcaffe")

# A shell starts what runs in the background with SIGINT ignored, and Python leaves it so; the tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is there for good, thousands of tests among it, is not looked through at every ``gc.collect()``."""
    gc.collect()
    gc.freeze()


_READ = ("REFCAFFE_", "GLOG_", "OPENBLAS_", "OMP_", "PYTHON")  # by refcaffe, or by processes of tests


def _process() -> dict[str, Any]:
    """What tests share, so that none may leave it changed: they run in any order, beside any others."""
    here, logger = context.current(), logging.getLogger("refcaffe")
    return {
        "environment": {name: value for name, value in os.environ.items() if name.startswith(_READ)},
        "folder": os.getcwd(),
        "caffe": [name for name in sys.modules if name.partition(".")[0] == "caffe"],
        "log": (logger.level, logger.propagate, list(logger.handlers)),
        "thread": (here.mode, here.device, here.solver_count, here.solver_rank, here.multiprocess),
        "build": context.current_build(),
        "device": device.runtime(),
        "SIGINT": signal.getsignal(signal.SIGINT),
    }


_before = pytest.StashKey[dict[str, Any]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    item.stash[_before] = _process()
    yield


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    yield
    before, after = item.stash[_before], _process()
    changed = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    assert not changed, f"left changed, before and after: {changed}"
