"""Runtimes: the host alone, and the fake device."""

import gc

import numpy as np
import pytest

from refcaffe import context, device
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.context import Context, Mode
from refcaffe.device import FakeRuntime, HostRuntime, Memory
from refcaffe.syncedmem import Head, SyncedMemory


@pytest.fixture(autouse=True)
def _fresh_context(monkeypatch):
    monkeypatch.setattr(context._local, "context", Context())


def test_without_a_gpu_using_one_is_refused_with_a_hint():
    with device.use(HostRuntime()):
        context.current().mode = Mode.GPU
        memory = SyncedMemory(8)
        assert memory.cpu_data().nbytes == 8
        with pytest.raises(CheckError, match="Cannot use GPU in CPU-only Caffe") as caught:
            memory.gpu_data()
        assert "REFCAFFE_DEVICE" in str(caught.value)


def test_an_unknown_device_is_named():
    with pytest.raises(CheckError, match="'tpu'"):
        device.make("tpu")


def test_the_environment_chooses_the_runtime(monkeypatch):
    monkeypatch.setattr(device, "_runtime", None)
    monkeypatch.setenv("REFCAFFE_DEVICE", "fake")
    assert device.runtime().name == "fake"


def test_device_memory_is_another_memory():
    with device.use(FakeRuntime()):
        blob = Blob((2, 3))
        blob.mutable_cpu_data()[...] = 1
        on_device = blob.mutable_gpu_data()
        on_device += 1
        assert not np.shares_memory(on_device, blob._data._cpu.array)
        np.testing.assert_array_equal(blob._data._cpu.array.view(np.float32), 1)
        np.testing.assert_array_equal(blob.cpu_data(), 2)


def test_new_memory_holds_garbage_unless_it_is_cleared():
    runtime = FakeRuntime()
    assert runtime.device_alloc(4, clear=False).array.any()
    assert not runtime.device_alloc(4, clear=True).array.any()
    assert runtime.host_alloc(4, pinned=False, clear=False).array.any()


def test_running_out_of_device_memory_is_a_clear_error_and_leaks_nothing():
    runtime = FakeRuntime(devices=1, bytes_each=100)
    with device.use(runtime):
        blob = Blob((20,))
        blob.gpu_data()
        assert runtime.in_use == [80]
        with pytest.raises(CheckError, match="out of memory") as caught:
            blob.gpu_diff()
        assert "80 bytes on device 0" in str(caught.value)
        assert runtime.in_use == [80]
        del blob, caught  # the traceback holds the blob too
        gc.collect()
        assert runtime.in_use == [0]


def test_devices_are_counted_and_others_refused():
    runtime = FakeRuntime(devices=2)
    runtime.set_device(1)
    assert runtime.get_device() == 1
    with pytest.raises(CheckError, match="invalid device ordinal"):
        runtime.set_device(2)


def test_events_are_recorded_in_order():
    runtime = FakeRuntime()
    events = []
    runtime.record = lambda event: events.append(event[0])
    with device.use(runtime):
        memory = SyncedMemory(4)
        memory.mutable_cpu_data()
        memory.async_gpu_push(runtime.new_stream())
        assert memory.head is Head.SYNCED
        memory.close()
    assert events == ["h_alloc", "h_memset", "d_alloc", "memcpy_async", "h_free", "d_free"]


def test_a_memory_can_wrap_the_callers_array():
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = Memory.of(array)
    assert memory.nbytes == 24
    assert np.shares_memory(memory.array, array)


def test_host_memory_that_cannot_be_had_is_a_clear_error():
    with pytest.raises(CheckError, match="host allocation of size"):
        HostRuntime().host_alloc(2**62, pinned=False, clear=True)
