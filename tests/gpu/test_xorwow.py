"""cuRAND's numbers on the host: as cuRAND 10.3 gave them, and as it gives them where it is installed."""

from __future__ import annotations

import random

import numpy as np
import pytest

from refcaffe.device.xorwow import Xorwow
from tests.gpu.curand import Curand, library

# By seed: words 0, 1, 2, 4095, 4096 and 4999, then two uniform floats and two doubles.
GIVEN = {
    0: (
        [3179217846, 3955638199, 167591721, 3614592305, 1883133293, 1232591943],
        ["0x1.decbe4p-3", "0x1.18a96p-3"],
        ["0x1.f4139634c2a86p-1", "0x1.5682c7502ba8ap-3"],
    ),
    1234: (
        [624778773, 3522650202, 2363946744, 3856448218, 1867875844, 1145497078],
        ["0x1.48958cp-2", "0x1.3e5be4p-1"],
        ["0x1.0d82d330fbc14p-1", "0x1.bafe78ea4f1b6p-1"],
    ),
    2**32 - 1: (
        [2141035869, 2286042063, 2767659590, 1995601300, 718178905, 1919621895],
        ["0x1.217fb6p-5", "0x1.c491b6p-3"],
        ["0x1.588b700912892p-3", "0x1.3346e085f7940p-1"],
    ),
}


@pytest.mark.parametrize("seed", GIVEN)
def test_numbers_of_curand(seed: int) -> None:
    words, floats, doubles = GIVEN[seed]
    generator = Xorwow(seed)
    assert generator.words(5000)[[0, 1, 2, 4095, 4096, 4999]].tolist() == words
    assert generator.uniform(2, np.float32).tolist() == [float.fromhex(text) for text in floats]
    assert generator.uniform(2, np.float64).tolist() == [float.fromhex(text) for text in doubles]


def test_calls_go_on_where_the_last_one_ended() -> None:
    together, one_by_one = Xorwow(7), Xorwow(7)
    parts = [one_by_one.words(count) for count in (10, 0, 1, 4096, 4085, 5, 9000)]
    np.testing.assert_array_equal(np.concatenate(parts), together.words(sum(map(len, parts))))


@pytest.mark.parametrize("seed", [0, 1, 99, 2**32 - 1, 2**64 - 1])
def test_curand_agrees(seed: int) -> None:
    curand = library()
    if curand is None:
        pytest.skip("cuRAND is not installed: pip install nvidia-curand-cu12")
    theirs, own, choose = Curand(curand, seed), Xorwow(seed), random.Random(seed)
    for _ in range(30):
        count = choose.choice([1, 2, 100, 4095, 4096, 4097, choose.randrange(1, 20000)])
        dtype = choose.choice([np.uint32, np.float32, np.float64])
        expected, found = (
            generator.words(count) if dtype is np.uint32 else generator.uniform(count, dtype)
            for generator in (theirs, own)
        )
        np.testing.assert_array_equal(found, expected)
