"""Fake devices for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from refcaffe import context, device
from refcaffe.context import Context, Mode
from refcaffe.device import FakeRuntime


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Context:
    """This thread's context, as in a new thread, but in GPU mode."""
    here = Context(mode=Mode.GPU)
    monkeypatch.setattr(context._local, "context", here)
    return here


@pytest.fixture
def fake(fresh: Context) -> Iterator[FakeRuntime]:
    """A machine with four fake devices."""
    with device.use(FakeRuntime()) as runtime:
        assert isinstance(runtime, FakeRuntime)
        yield runtime
