"""SyncedMemory: laws that hold over all sequences; the recorded sequences are conformance cases."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from refcaffe import device
from refcaffe.device import FakeRuntime, Memory
from refcaffe.syncedmem import Head, SyncedMemory

ACCESS = st.lists(st.sampled_from(["cpu_data", "gpu_data", "mutable_cpu_data", "mutable_gpu_data"]), max_size=12)


@given(ACCESS)
def test_a_reader_always_sees_what_was_last_written(accesses):
    with device.use(FakeRuntime()):
        memory = SyncedMemory(8)
        written = 0
        for i, access in enumerate(accesses, 1):
            array = getattr(memory, access)().array
            assert (array == written).all()
            if access.startswith("mutable"):
                written = i
                array[:] = i
        memory.close()


@given(ACCESS)
def test_each_side_is_allocated_at_most_once_and_everything_is_freed(accesses):
    runtime = FakeRuntime()
    events = []
    runtime.record = events.append
    with device.use(runtime):
        memory = SyncedMemory(8)
        for access in accesses:
            getattr(memory, access)()
        del memory
    names = [event[0] for event in events]
    assert names.count("h_alloc") == names.count("h_free") <= 1
    assert names.count("d_alloc") == names.count("d_free") <= 1
    assert runtime.in_use == [0] * 4


@given(ACCESS)
def test_reading_twice_copies_once(accesses):
    runtime = FakeRuntime()
    with device.use(runtime):
        memory = SyncedMemory(8)
        for access in accesses:
            getattr(memory, access)()
        memory.cpu_data()
        memory.gpu_data()
        events = []
        runtime.record = events.append
        memory.cpu_data()
        memory.gpu_data()
        assert events == []
        assert memory.head in (Head.SYNCED, Head.HEAD_AT_GPU, Head.HEAD_AT_CPU)
        runtime.record = None


def test_the_callers_memory_is_used_and_never_freed():
    runtime = FakeRuntime()
    events = []
    runtime.record = lambda event: events.append(event[0])
    array = np.full(2, 3, np.float32)
    with device.use(runtime):
        memory = SyncedMemory(8)
        memory.set_cpu_data(Memory.of(array))
        memory.mutable_gpu_data().array[:] = 0
        memory.cpu_data()
        assert not array.any()
        memory.close()
    assert "h_free" not in events
