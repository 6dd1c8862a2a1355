"""Laws of the random stream: words, counts, chunks, checks."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe.checks import CheckError
from refcaffe.rng import Stream, nextafter

REALS = (np.float32, np.float64)
seeds = st.integers(0, 2**32 - 1)
chunks = st.lists(st.integers(0, 2500), max_size=4)


def draw(stream: Stream, what: str, n: int, dtype: Any) -> np.ndarray:
    out = np.empty(n, dtype)
    if what == "bernoulli":
        stream.bernoulli(n, np.float32(0.3), out)
    else:
        getattr(stream, what)(n, -1.0, 2.0, out)
    return out


KINDS = [(what, real) for what in ("uniform", "gaussian") for real in REALS]
KINDS += [("bernoulli", np.int32), ("bernoulli", np.uint32)]


@given(seeds, chunks)
@settings(deadline=None, max_examples=30)
def test_words_are_those_of_numpys_mt19937(seed: int, sizes: list[int]) -> None:
    stream = Stream(seed)
    wanted = np.random.RandomState(seed).randint(0, 2**32, sum(sizes) + 1, dtype=np.uint32)
    got = [stream.raws(n) if n % 2 else np.array([stream.raw() for _ in range(n)], np.uint32) for n in sizes]
    assert np.array_equal(np.concatenate([*got, stream.raws(1)]), wanted)
    assert stream.draws == wanted.size


def test_a_seed_is_taken_as_an_unsigned_int() -> None:
    assert Stream(-1).raw() == Stream(2**32 - 1).raw()
    assert Stream(2**32).raw() == Stream(0).raw() == 2357136044


def test_words_given_away_are_the_callers() -> None:
    stream = Stream(1)
    stream.raws(10)[:] = 0
    assert np.array_equal(stream.raws(5), Stream(1).raws(15)[10:])


@given(seeds, st.integers(0, 3000))
@settings(deadline=None, max_examples=30)
def test_peek_takes_nothing_and_skip_takes_n(seed: int, n: int) -> None:
    stream, other = Stream(seed), Stream(seed)
    stream.peek()
    stream.skip(n)
    other.raws(n)
    assert stream.draws == other.draws == n
    assert stream.peek() == stream.peek() == other.raw()


def test_a_sub_stream_is_seeded_with_one_word() -> None:
    stream = Stream(7)
    word = stream.peek()
    assert np.array_equal(stream.sub_stream().raws(9), Stream(word).raws(9))
    assert stream.draws == 1


@pytest.mark.parametrize("what, dtype", KINDS)
def test_n_samples_are_n_times_one(what: str, dtype: Any) -> None:
    whole, single = Stream(11), Stream(11)
    wanted = draw(whole, what, 1200, dtype)
    got = np.concatenate([draw(single, what, 1, dtype) for _ in range(1200)])
    assert got.tobytes() == wanted.tobytes()
    assert (single.draws, single.peek()) == (whole.draws, whole.peek())


@pytest.mark.parametrize("what, dtype", KINDS)
def test_large_calls_cross_blocks(what: str, dtype: Any) -> None:
    whole, parts = Stream(12), Stream(12)
    sizes = (1, 65_535, 65_537, 100_000, 3, 0, 70_001)
    wanted = draw(whole, what, sum(sizes), dtype)
    got = np.concatenate([draw(parts, what, n, dtype) for n in sizes])
    assert got.tobytes() == wanted.tobytes()
    assert (parts.draws, parts.peek()) == (whole.draws, whole.peek())


@given(seeds, chunks, st.sampled_from(KINDS))
@settings(deadline=None, max_examples=40)
def test_kinds_share_one_stream(seed: int, sizes: list[int], kind: tuple[str, Any]) -> None:
    stream = Stream(seed)
    for n in sizes:
        draw(stream, *kind[:1], n, kind[1])
        stream.raw()
    assert stream.raw() == int(Stream(seed).raws(stream.draws)[-1])


@pytest.mark.parametrize("real", REALS)
def test_moments(real: Any) -> None:
    n = 400_000
    gaussian, uniform = draw(Stream(5), "gaussian", n, real) / 2, draw(Stream(6), "uniform", n, real)
    assert gaussian.dtype == uniform.dtype == real
    assert gaussian.mean() == pytest.approx(-0.5, abs=0.01)
    assert gaussian.std() == pytest.approx(1, abs=0.01)
    assert ((gaussian + 0.5) ** 4).mean() == pytest.approx(3, abs=0.1)
    assert (np.abs(gaussian + 0.5) > 3.4426).mean() == pytest.approx(5.76e-4, rel=0.3)
    assert uniform.mean() == pytest.approx(0.5, abs=0.01)
    assert -1 <= uniform.min() < -0.999 and 1.999 < uniform.max() <= 2


def test_only_the_first_n_elements_are_written() -> None:
    for what, dtype in KINDS:
        out = np.full(5, 9, dtype)
        n = 2
        if what == "bernoulli":
            Stream(1).bernoulli(n, 0.5, out)
        else:
            getattr(Stream(1), what)(n, 0.0, 1.0, out)
        assert (out[2:] == 9).all() and (out[:2] != 9).all()


@given(seeds, st.integers(0, 400))
@settings(deadline=None, max_examples=30)
def test_shuffle_permutes_lists_and_arrays_alike(seed: int, n: int) -> None:
    stream, other = Stream(seed), Stream(seed)
    values, array = [f"{i}" for i in range(n)], np.arange(n)
    stream.shuffle(values)
    other.shuffle(array)
    assert values == [f"{i}" for i in array]
    assert sorted(array) == list(range(n))
    assert stream.draws == other.draws >= max(0, n - 1)


def test_shuffle_is_fair() -> None:
    stream, counts = Stream(1), np.zeros((5, 5), int)
    for _ in range(4000):
        values = np.arange(5)
        stream.shuffle(values)
        counts[np.arange(5), values] += 1
    assert np.abs(counts - 800).max() < 120


@pytest.mark.parametrize("real", REALS)
def test_nextafter(real: Any) -> None:
    biggest, smallest = np.finfo(real).max, np.finfo(real).smallest_subnormal
    cases = {0.0: smallest, biggest: biggest, math.inf: biggest, -math.inf: -biggest}
    cases |= {1.0: 1 + np.finfo(real).eps, -smallest: 0.0}
    for x, above in cases.items():
        got = nextafter(real(x))
        assert got == above and type(got) is real
    assert not np.signbit(nextafter(real(-smallest)))
    assert type(nextafter(1.0)) is np.float64


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("real", REALS)
def test_infinite_and_huge_parameters_pass(real: Any) -> None:
    out = np.empty(50, real)
    Stream(1).gaussian(50, math.inf, 1, out)
    assert np.isposinf(out).all()
    Stream(1).gaussian(50, 0, math.inf, out)
    assert np.isinf(out).all()
    Stream(1).gaussian(50, math.nan, 1, out)
    assert np.isnan(out).all()
    Stream(1).uniform(50, 1e300, math.inf, out) if real is np.float64 else None
    Stream(1).uniform(50, -np.finfo(real).max, 1e300, out)
    assert np.isfinite(out).all() and (out < 0).any() and (out > 0).any() == (real is np.float32)


F4 = np.empty(1, np.float32)
I4 = np.empty(1, np.int32)


@pytest.mark.parametrize(
    "what, arguments, message",
    [
        ("uniform", (-1, 2.0, 1.0, None), "n >= 0 (-1 vs. 0) "),
        ("uniform", (1, 2.0, 1.0, None), "r "),
        ("uniform", (0, 2.0, 1.0, F4), "a <= b (2 vs. 1) "),
        ("uniform", (1, math.nan, 1.0, F4), "a <= b (nan vs. 1) "),
        ("uniform", (1, 0.1, -1e-7, F4), "a <= b (0.1 vs. -1e-07) "),
        ("gaussian", (-2, 0.0, 0.0, None), "n >= 0 (-2 vs. 0) "),
        ("gaussian", (0, 0.0, 0.0, None), "r "),
        ("gaussian", (1, 0.0, 1e-50, F4), "sigma > 0 (0 vs. 0) "),
        ("gaussian", (0, 0.0, -0.25, F4), "sigma > 0 (-0.25 vs. 0) "),
        ("gaussian", (1, 0.0, math.nan, F4), "sigma > 0 (nan vs. 0) "),
        ("bernoulli", (-3, 2.0, None), "n >= 0 (-3 vs. 0) "),
        ("bernoulli", (1, 2.0, None), "r "),
        ("bernoulli", (1, -0.5, I4), "p >= 0 (-0.5 vs. 0) "),
        ("bernoulli", (0, np.float32(1.0000001), I4), "p <= 1 (1 vs. 1) "),
        ("bernoulli", (1, math.nan, I4), "p >= 0 (nan vs. 0) "),
    ],
)
def test_refusals(what: str, arguments: tuple[Any, ...], message: str) -> None:
    stream = Stream(1)
    with pytest.raises(CheckError) as caught:
        getattr(stream, what)(*arguments)
    assert caught.value.message == f"Check failed: {message}"
    assert caught.value.file == "math_functions.cpp"
    assert stream.draws == 0


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize(
    "a, b", [(-math.inf, 0.0), (-math.inf, -math.inf), (math.inf, math.inf), (-math.inf, math.inf)]
)
def test_a_uniform_that_would_never_end_is_refused(real: Any, a: float, b: float) -> None:
    stream, out = Stream(1), np.empty(1, real)
    with pytest.raises(CheckError, match="forever"):
        stream.uniform(1, a, b, out)
    stream.uniform(0, a, b, out)
    biggest = np.finfo(real).max
    with pytest.raises(CheckError, match="forever"):
        stream.uniform(1, biggest, biggest, out)
    assert stream.draws == 0


@pytest.mark.parametrize("what", ["uniform", "gaussian"])
def test_other_types_are_refused(what: str) -> None:
    with pytest.raises(TypeError, match="int32"):
        getattr(Stream(1), what)(1, 0.0, 1.0, np.empty(1, np.int32))


def test_importing_is_light() -> None:
    code = "import sys, refcaffe.rng; assert not {'decimal', 'numba'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
