"""``device_query`` and ``--gpu`` on fake devices."""

from __future__ import annotations

import pytest

from refcaffe import device
from refcaffe.cli.main import main
from refcaffe.device import FakeRuntime, HostRuntime


@pytest.mark.parametrize(("flag", "asked"), [("1", ["1"]), ("2,0", ["2", "0"]), ("all", ["0", "1", "2", "3"])])
def test_properties_of_each_device(
    flag: str, asked: list[str], fake: FakeRuntime, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["device_query", "--gpu", flag]) == 0
    lines = [line.partition("] ")[2] for line in capfd.readouterr().err.splitlines()]
    assert lines[0] == f"Querying GPUs {flag}"
    assert [line.split()[-1] for line in lines if line.startswith("Device id:")] == asked
    assert len(lines) == 1 + 18 * len(asked)
    assert "Name:                          refcaffe fake device in host memory" in lines
    assert "Kernel execution timeout:      No" in lines


def test_memory_is_what_the_device_has(fresh: object, capfd: pytest.CaptureFixture[str]) -> None:
    with device.use(FakeRuntime(devices=1, bytes_each=12345)):
        assert main(["device_query", "--gpu", "0"]) == 0
    assert "Total global memory:           12345\n" in capfd.readouterr().err


def test_a_device_that_is_not_there(fake: FakeRuntime, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["device_query", "--gpu", "4"]) == 134
    err = capfd.readouterr().err
    assert "invalid device ordinal" in err
    assert "device 4 of 4" in err


def test_without_a_gpu(fresh: object, capfd: pytest.CaptureFixture[str]) -> None:
    with device.use(HostRuntime()):
        assert main(["device_query", "--gpu", "0"]) == 134
    assert "Cannot use GPU in CPU-only Caffe" in capfd.readouterr().err
