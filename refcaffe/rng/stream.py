"""Stream: raw words of one mt19937, and the distributions that need no tables."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refcaffe.checks import Checker
from refcaffe.rng.ziggurat import gaussians

_check = Checker("math_functions.cpp")

_REFILL = 1024  # words made at a time when few are asked for
_BLOCK = 1 << 16  # words handled at a time: the temporaries stay in the cache
_SHUFFLE_BLOCK = 1 << 13  # less, since a rejection throws away what was computed behind it


def nextafter(x: Any) -> Any:
    """The next float above ``x`` in its own type (float32 or float64).

    The largest float stays, infinity comes down to it, and the value above the smallest negative one is +0.
    """
    real: Any = x.dtype.type if isinstance(x, np.generic) else np.float64
    return np.nextafter(x, np.finfo(real).max, dtype=real) + real(0)


def _real_type(out: NDArray[Any]) -> Any:
    real = out.dtype.type
    if real not in (np.float32, np.float64):
        raise TypeError(f"out must be float32 or float64, not {out.dtype}")
    return real


class Stream:
    """One mt19937 stream; ``seed`` is taken modulo 2**32.

    No call takes a word more than upstream's does, and n samples at once are the same as n times one.
    ``draws`` counts the words given away so far.
    """

    __slots__ = ("_buffer", "_source", "_start", "draws", "seed")

    def __init__(self, seed: int) -> None:
        self.seed = int(seed) & 0xFFFFFFFF
        self.draws = 0
        self._source: np.random.RandomState | None = None  # costly to make, and many streams are never used
        self._buffer: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._start = 0

    def ahead(self, n: int) -> NDArray[np.uint32]:
        """The next ``n`` words, which stay in the stream; read only."""
        rest = self._buffer.size - self._start
        if rest < n:
            if self._source is None:
                self._source = np.random.RandomState(self.seed)
            fresh = self._source.randint(0, 1 << 32, max(n - rest, _REFILL), dtype=np.uint32)
            # A new array each time, since views of the old one may still be in use.
            self._buffer = np.concatenate((self._buffer[self._start :], fresh)) if rest else fresh
            self._start = 0
        return self._buffer[self._start : self._start + n]

    def skip(self, n: int) -> None:
        """Throw away ``n`` words."""
        self.draws += n
        while n > 0:
            step = min(n, _BLOCK)
            self.ahead(step)
            self._start += step
            n -= step

    def peek(self) -> int:
        """The word that will be drawn next; it stays in the stream."""
        return int(self.ahead(1)[0])

    def raw(self) -> int:
        """Draw one word, 0 … 2**32 - 1 (upstream: ``caffe_rng_rand``)."""
        word = self.peek()
        self._start += 1
        self.draws += 1
        return word

    def raws(self, n: int) -> NDArray[np.uint32]:
        """Draw ``n`` words: uint32, (n,)."""
        words = self.ahead(n).copy()
        self._start += n
        self.draws += n
        return words

    def sub_stream(self) -> Stream:
        """A new stream, seeded with one word of this one."""
        return Stream(self.raw())

    def uniform(self, n: int, a: float, b: float, out: NDArray[Any]) -> None:
        """Fill ``out[:n]`` (flat, float32 or float64: the type of all arithmetic) from [a, b].

        CheckError if n < 0, ``out`` is None or not a <= b, and, if n > 0, where upstream would never return:
        ``a`` infinite, or the largest float itself.
        """
        _check.ge(n, 0, "n >= 0")
        _check(out is not None, "r")
        real = _real_type(out)
        with np.errstate(over="ignore"):
            low, high = real(a), real(b)
        _check.le(float(low), float(high), "a <= b")
        high = nextafter(high)
        if n and not -np.inf < low < high:
            _check.fatal(f"uniform({low}, {b}): no such number exists; original Caffe would search forever.")
        half_low, half_high = low / real(2), high / real(2)
        halved = half_high - half_low > np.finfo(real).max / real(2)
        if halved:
            low, high = half_low, half_high
        done = 0
        while done < n:
            # A sample takes at least one word, so these belong to this call whatever is rejected.
            words = self.ahead(min(n - done, _BLOCK))
            x = words.astype(real)
            x *= real(2.0**-32)
            x *= high - low
            x += low
            fits = x < high
            if not fits.all():
                x = x[fits]
            out[done : done + x.size] = x * real(2) if halved else x
            self.skip(words.size)
            done += x.size

    def gaussian(self, n: int, mu: float, sigma: float, out: NDArray[Any]) -> None:
        """Fill ``out[:n]`` (flat, float32 or float64: the type of all arithmetic) from N(mu, sigma²).

        CheckError if n < 0, ``out`` is None or not sigma > 0.
        """
        _check.ge(n, 0, "n >= 0")
        _check(out is not None, "r")
        real = _real_type(out)
        with np.errstate(over="ignore", invalid="ignore"):  # upstream lets infinite parameters through
            mean, deviation = real(mu), real(sigma)
            _check.gt(float(deviation), 0, "sigma > 0")
            done = 0
            while done < n:
                unit = gaussians(self, min(n - done, _BLOCK), real)
                out[done : done + unit.size] = unit * deviation + mean
                done += unit.size

    def bernoulli(self, n: int, p: float, out: NDArray[Any]) -> None:
        """Fill ``out[:n]`` (flat, int32 or uint32) with 1, of probability ``p``, or 0; p = 0 draws nothing.

        All arithmetic is in the type of ``p``: float32 for np.float32, double otherwise.
        CheckError if n < 0, ``out`` is None or not 0 <= p <= 1.
        """
        _check.ge(n, 0, "n >= 0")
        _check(out is not None, "r")
        _check.ge(float(p), 0, "p >= 0")
        _check.le(float(p), 1, "p <= 1")
        if p == 0:
            out[:n] = 0
            return
        real: Any = np.float32 if isinstance(p, np.float32) else np.float64
        limit = real(p) * real(0xFFFFFFFF)
        for start in range(0, n, _BLOCK):
            words = self.ahead(min(n - start, _BLOCK))
            out[start : start + words.size] = words.astype(real) <= limit
            self.skip(words.size)

    def shuffle(self, values: MutableSequence[Any] | NDArray[Any]) -> None:
        """Shuffle ``values`` (a list, or an array along its first axis) in place."""
        order = list(range(len(values))) if isinstance(values, np.ndarray) else values
        for i, j in zip(range(len(order) - 1, 0, -1), self._partners(len(order)), strict=True):
            order[i], order[j] = order[j], order[i]
        if isinstance(values, np.ndarray):
            values[:] = values[order]

    def _partners(self, n: int) -> list[int]:
        """For each i = n-1 … 1 a random index 0 … i, which the high bits of a word decide."""
        partners: list[int] = []
        top = n - 1
        while top > 0:
            i = np.arange(top, max(top - _SHUFFLE_BLOCK, 0), -1, dtype=np.int64)
            j = self.ahead(i.size) // ((1 << 32) // (i + 1))
            fits = j <= i
            good = i.size if fits.all() else int(fits.argmin())
            partners += j[:good].tolist()
            self.skip(good if good == i.size else good + 1)  # the rejected word is spent
            top -= good
        return partners
