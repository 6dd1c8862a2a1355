"""What is asked of the host's memory before it is taken."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.device import FakeRuntime, room, use
from refcaffe.telling import telling

LARGE = 1 << 40


def _let_be_left(monkeypatch: pytest.MonkeyPatch, nbytes: float) -> None:
    monkeypatch.setattr(room, "room", lambda: nbytes)


def test_little_is_taken_without_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_be_left(monkeypatch, 0)
    room.require(1 << 24)
    assert not room.fits((1 << 24) + 1)


def test_more_than_there_is_is_refused_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_be_left(monkeypatch, LARGE)
    room.require(LARGE)
    with pytest.raises(room.NoRoom, match=str(LARGE + 1)) as caught:
        room.require(LARGE + 1)
    assert caught.value.nbytes == LARGE + 1


@pytest.mark.parametrize("runtime", ["cpu", FakeRuntime()], ids=["cpu", "fake"])
def test_a_blob_that_does_not_fit_is_refused_when_it_is_touched(
    runtime: str | FakeRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    _let_be_left(monkeypatch, 1 << 25)
    with use(runtime):
        blob = Blob((3000, 3000))  # 36 MB; a shape takes no memory
        with pytest.raises(CheckError) as caught:
            blob.mutable_cpu_data()
        assert caught.value.message == "Check failed: *ptr host allocation of size 36000000 failed"


def test_a_fake_device_does_not_take_more_than_the_host_has(monkeypatch: pytest.MonkeyPatch) -> None:
    _let_be_left(monkeypatch, 1 << 25)
    with use(FakeRuntime()), pytest.raises(CheckError, match="out of memory"):
        Blob((3000, 3000)).mutable_gpu_data()


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (room.NoRoom(5), "Check failed: *ptr host allocation of size 5 failed"),
        (MemoryError("at all"), "Check failed: *ptr host allocation failed"),
    ],
    ids=["foreseen", "not foreseen"],
)
def test_missing_memory_is_a_check_that_fails_somewhere(error: MemoryError, message: str) -> None:
    with pytest.raises(CheckError) as caught, telling(lambda: "layer 'x'"):
        raise error
    assert caught.value.message == message
    assert caught.value.where[-1] == "layer 'x'"
    assert caught.value.__cause__ is error


def test_a_container_has_what_its_limit_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_CGROUP", str(tmp_path))
    assert room._of_group() == math.inf
    for name, text in (("memory.max", "1000\n"), ("memory.current", "700\n"), ("memory.stat", "anon 600\nfile 100\n")):
        (tmp_path / name).write_text(text)
    assert room._of_group() == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert room._of_group() == math.inf


def test_the_machine_says_what_it_has() -> None:
    assert room.room() > 0
    assert room._numbers("/proc/there is no such file") == {}


def test_a_limit_of_the_process_counts() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_AS)
    if not Path("/proc/self/statm").exists():
        pytest.skip("the system does not tell how much is taken")
    resource.setrlimit(resource.RLIMIT_AS, (1 << 45, before[1]))
    try:
        assert min(room._of_process()) < 1 << 45
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
