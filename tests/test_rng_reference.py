"""The random stream against a sequential implementation, sample by sample, of the same rules."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np
import pytest

from refcaffe.rng import Stream

REALS = (np.float32, np.float64)
R_NORMAL = "3.44261985589665212142432049146733970433759739"
V_NORMAL = "0.00991256303533646107909568530581016219737970128"
R_EXPONENTIAL = "7.69711747013104971404462804801521549911396864"
V_EXPONENTIAL = "0.00394965982258155721997757195681486109191281237"


def make_table(layers: int, end: str, area: str, f: Any, inverse: Any) -> tuple[np.ndarray, np.ndarray]:
    with localcontext() as precision:
        precision.prec = 60
        x = [Decimal(area) / f(Decimal(end)), Decimal(end)]
        while len(x) < layers:
            x.append(inverse(f(x[-1]) + Decimal(area) / x[-1]))
        y = [Decimal(0), *map(f, x[1:])]
        return np.array([*x, 0], float), np.array([*y, 1], float)


@cache
def tables() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    normal = make_table(128, R_NORMAL, V_NORMAL, lambda x: (-x * x / 2).exp(), lambda y: (-2 * y.ln()).sqrt())
    return normal, make_table(256, R_EXPONENTIAL, V_EXPONENTIAL, lambda x: (-x).exp(), lambda y: -y.ln())


class Sequential:
    """The distributions over a list of raw words; ``at`` counts those taken."""

    def __init__(self, words: np.ndarray, real: Any) -> None:
        self.words = words.tolist()
        self.at = 0
        self.T = real

    def raw(self) -> int:
        self.at += 1
        return self.words[self.at - 1]

    def u01(self) -> Any:
        T = self.T
        while (u := T(self.raw()) * T(2.0**-32)) >= 1:
            pass
        return u

    def pair(self) -> tuple[Any, int]:
        u = self.raw()
        if self.T is np.float32:
            return np.float32(u >> 8) * np.float32(2.0**-24), u & 255
        return (float(u >> 8) * 2.0**-24 + float(self.raw() & (2**29 - 1))) * 2.0**-29, u & 255

    def exponential(self) -> Any:
        T, (X, Y) = self.T, tables()[1]
        shift = T(0)
        while True:
            f, i = self.pair()
            x = T(f) * T(X[i])
            if x < T(X[i + 1]):
                return shift + x
            if i == 0:
                shift = shift + T(X[1])
                continue
            y01 = self.u01()
            y = T(Y[i]) + y01 * T(Y[i + 1] - Y[i])
            upper = T(X[i] - X[i + 1]) * y01 - (T(X[i]) - x)
            lower = y - (T(Y[i + 1]) + (T(X[i + 1]) - x) * T(Y[i + 1]))
            if upper < 0 and (lower < 0 or y < T(math.exp(-float(x)))):
                return x + shift

    def tail(self) -> Any:
        R = self.T(tables()[0][0][1])
        while True:
            a = self.exponential() / R
            b = self.exponential()
            if self.T(2) * b > a * a:
                return a + R

    def unit_normal(self) -> Any:
        T, (X, Y) = self.T, tables()[0]
        while True:
            f, index = self.pair()
            sign, i = T(1 if index & 1 else -1), index >> 1
            x = T(f) * T(X[i])
            if float(x) < X[i + 1]:
                return x * sign
            if i == 0:
                return self.tail() * sign
            y01 = self.u01()
            y = T(Y[i]) + y01 * T(Y[i + 1] - Y[i])
            p = T(X[i] - X[i + 1]) * y01 - (T(X[i]) - x)
            q = y - (T(Y[i]) + (T(X[i]) - x) * T(Y[i]) * T(X[i]))
            upper, lower = (p, q) if X[i] >= 1 else (q, p)
            if upper < 0 and (lower < 0 or y < T(math.exp(-float(x * x / T(2))))):
                return x * sign

    def gaussian(self, mu: float, sigma: float) -> Any:
        return self.unit_normal() * self.T(sigma) + self.T(mu)

    def uniform(self, low: Any, high: Any) -> Any:
        T = self.T
        if high / T(2) - low / T(2) > np.finfo(T).max / T(2):
            return T(2) * self.uniform(low / T(2), high / T(2))
        while True:
            x = T(self.raw()) / T(2.0**32) * (high - low) + low
            if x < high:
                return x

    def shuffled(self, n: int) -> list[int]:
        values = list(range(n))
        for i in range(n - 1, 0, -1):
            bucket = (2**32 - 1) // (i + 1) + ((2**32 - 1) % (i + 1) == i)
            while (r := self.raw() // bucket) > i:
                pass
            values[i], values[r] = values[r], values[i]
        return values


def over(words: np.ndarray) -> Stream:
    """A stream that gives these words first."""
    stream = Stream(0)
    stream._buffer = words
    return stream


def awkward_words(seed: int, n: int) -> np.ndarray:
    """Many that round up to 2**32, fall into wedges or reach the tail; at the end, plain ones."""
    random = np.random.default_rng(seed)
    plain = random.integers(0, 2**32, n, dtype=np.uint32)
    wedge = plain | random.choice(np.array([0xF0000000, 0xFF000000], np.uint32), n)
    tail = wedge & np.uint32(0xFFFFFF01)
    rejected = random.integers(2**32 - 200, 2**32, n, dtype=np.uint32)
    pick = random.choice(4, n, p=[0.4, 0.3, 0.1, 0.2])
    words = np.choose(pick, [plain, wedge, tail, rejected]).astype(np.uint32)
    return np.concatenate((words, random.integers(0, 2**31, 64 + n, dtype=np.uint32)))


def same(got: np.ndarray, wanted: list[Any]) -> None:
    assert got.tobytes() == np.array(wanted, got.dtype).tobytes()


@pytest.mark.parametrize("real", REALS)
@pytest.mark.parametrize("seed", [0, 1, 1701, 2**32 - 1])
def test_gaussian(real: Any, seed: int) -> None:
    stream, reference = Stream(seed), Sequential(Stream(seed).raws(30_000), real)
    for n, mu, sigma in ((1, 0, 1), (5000, 0, 1), (3, -2.5, 1e-45), (0, 0, 1), (1500, 0.1, 3e37)):
        out = np.empty(n, real)
        if real(sigma) > 0:
            stream.gaussian(n, mu, sigma, out)
            same(out, [reference.gaussian(mu, sigma) for _ in range(n)])
        assert stream.draws == reference.at


@pytest.mark.parametrize("real", REALS)
def test_gaussian_of_awkward_words(real: Any) -> None:
    for seed in range(60):
        words = awkward_words(seed, 400)
        stream, reference = over(words), Sequential(words, real)
        for n in (1, 7, 100):
            out = np.empty(n, real)
            stream.gaussian(n, 0, 1, out)
            same(out, [reference.gaussian(0, 1) for _ in range(n)])
            assert stream.draws == reference.at


def test_gaussian_at_the_edges_of_layers() -> None:
    """Floats: the integer fractions just before, at and behind the layer above, for each low byte."""
    x = tables()[0][0]
    low = np.repeat(np.arange(256), 5)
    edge = (x[(low >> 1) + 1] / x[low >> 1] * 2**24).astype(np.int64) + np.tile(np.arange(-2, 3), 256)
    heights = np.random.default_rng(1).integers(0, 2**32, low.size)
    words = np.column_stack((np.maximum(edge, 0) << 8 | low, heights)).ravel().astype(np.uint32)
    words = np.concatenate((words, Stream(1).raws(5000)))
    stream, reference, out = over(words), Sequential(words, np.float32), np.empty(2500, np.float32)
    stream.gaussian(2500, 0, 1, out)
    same(out, [reference.gaussian(0, 1) for _ in range(2500)])
    assert stream.draws == reference.at


RANGES = [
    (0, 1),
    (-1, 1),
    (0, 0),
    (-0.0, -0.0),
    (3, 3),
    (-30, -30),
    (1, 1 + 2**-22),
    (1e-45, 1e-45),
    (-1e-45, 0),
    (-5e-324, -5e-324),
    (-1e-40, 1e-40),
    (0.1, 7.3),
    (-3.4e38, 3.4e38),
    (-1.7e308, 1.7e308),
    (1e38, math.inf),
    (0, math.inf),
    (-2.0, math.inf),
]


@pytest.mark.filterwarnings("ignore:overflow")
@pytest.mark.parametrize("real, a, b", [(real, *ends) for real in REALS for ends in RANGES])
def test_uniform(real: Any, a: float, b: float) -> None:
    low, high = max(real(a), -np.finfo(real).max), real(b)
    biggest = np.finfo(real).max
    above = biggest if high >= biggest else np.nextafter(high, biggest) + real(0)
    for words in (Stream(3).raws(4000), awkward_words(5, 2000)):
        stream, reference = over(words), Sequential(words, real)
        for n in (1, 0, 800):
            out = np.empty(n, real)
            stream.uniform(n, low, b, out)
            same(out, [reference.uniform(low, above) for _ in range(n)])
            assert stream.draws == reference.at


@pytest.mark.parametrize("p", [0.0, 1e-12, 0.05, 0.5, 1 - 1e-9, 1.0])
@pytest.mark.parametrize("real", REALS)
def test_bernoulli(p: float, real: Any) -> None:
    for words in (Stream(3).raws(2000), awkward_words(9, 2000)):
        stream, out = over(words), np.empty(2000, np.uint32)
        stream.bernoulli(2000, real(p), out)
        wanted = [p != 0 and real(word) <= real(p) * real(4294967295) for word in words[:2000].tolist()]
        assert out.tolist() == wanted
        assert stream.draws == (2000 if p else 0)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 5, 64, 1000, 9001])
def test_shuffle(n: int) -> None:
    for words in (Stream(3).raws(20_000), awkward_words(5, 10_000)):
        stream, reference, values = over(words), Sequential(words, np.float64), list(range(n))
        stream.shuffle(values)
        assert values == reference.shuffled(n)
        assert stream.draws == reference.at
