"""The random generator of a device: when it starts anew, and whose it is."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from refcaffe import context, device
from refcaffe.checks import CheckError
from refcaffe.context import Context
from refcaffe.device import FakeRuntime, HostRuntime


def some_words(runtime: FakeRuntime, count: int = 8) -> list[int]:
    out = np.zeros(count, np.uint32)
    runtime.generator().words(out)
    return out.tolist()


def test_a_seed_decides_the_numbers(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(3)
    first = some_words(fake)
    following = some_words(fake)
    here.set_random_seed(3)
    assert [some_words(fake), some_words(fake)] == [first, following]
    here.set_random_seed(4)
    assert some_words(fake) != first


def test_seeds_are_unsigned_ints(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(-1)
    first = some_words(fake)
    here.set_random_seed(2**32 - 1)
    assert some_words(fake) == first


def test_seeding_starts_the_hosts_stream_and_the_devices_generator(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(3)
    words, raw = some_words(fake), here.stream.raw()
    here.set_random_seed(3)
    assert (here.stream.raw(), some_words(fake)) == (raw, words)


def test_another_device_has_a_generator_that_nobody_seeded(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(3)
    first = some_words(fake)
    fake.set_device(1)
    assert some_words(fake) != first
    fake.set_device(0)  # and so has the first one then
    assert some_words(fake) != first


def test_the_device_it_already_is_changes_nothing(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(3)
    first, following = some_words(fake), some_words(fake)
    here.set_random_seed(3)
    assert some_words(fake) == first
    fake.set_device(0)
    assert some_words(fake) == following


def test_each_thread_has_its_own(fake: FakeRuntime) -> None:
    here = context.current()
    here.set_random_seed(3)
    found: list[list[int]] = []

    def work() -> None:
        context.current().set_random_seed(3)
        found.append(some_words(fake))

    some = threading.Thread(target=work)
    some.start()
    some.join()
    assert found == [some_words(fake)]


def test_uniform_numbers_are_above_0_up_to_1(fake: FakeRuntime) -> None:
    for dtype in (np.float32, np.float64):
        out = np.full(10000, -1, dtype)
        fake.generator().uniform(out)
        assert out.min() > 0
        assert out.max() <= 1
        assert 0.49 < out.mean() < 0.51


def test_words_use_all_bits(fake: FakeRuntime) -> None:
    words = np.array(some_words(fake, 1000), np.uint32)
    assert np.bitwise_or.reduce(words) == 2**32 - 1
    assert np.bitwise_and.reduce(words) == 0


def test_another_maker_may_be_put_in_its_place(fake: FakeRuntime) -> None:
    class Counting:
        def seed(self, seed: int) -> None:
            self.next = seed

        def words(self, out: np.ndarray) -> None:
            out[...] = np.arange(self.next, self.next + out.size)

        def uniform(self, out: np.ndarray) -> None:
            raise NotImplementedError

    fake.make_generator = Counting
    context.current().set_random_seed(5)
    assert some_words(fake, 3) == [5, 6, 7]


def test_the_host_alone_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context._local, "context", Context())
    with device.use(HostRuntime()) as runtime, pytest.raises(CheckError, match="CPU-only"):
        runtime.generator()
