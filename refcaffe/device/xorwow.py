"""cuRAND's default generator, computed on the host: XORWOW, its numbers dealt out by 4096 states in turn.

Written from what cuRAND documents, and from the numbers that its own generator for the host gives, which are the same.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

_STATES = 4096
_APART = 67  # a state starts 2**67 numbers after the one before it
_BITS = 160

Words = NDArray[np.uint32]


def _step(state: Words) -> None:
    """One step of states, (5, n); the counter that is added to them goes its own way."""
    t = state[0] ^ (state[0] >> 2)
    state[:4] = state[1:]
    state[4] ^= (state[4] << 4) ^ t ^ (t << 1)


def _apply(images: Words, states: Words) -> Words:
    """A linear map of states, given by the images of their bits, (160, 5)."""
    out = np.zeros_like(states)
    for bit, image in enumerate(images):
        out ^= image[:, None] * ((states[bit // 32] >> np.uint32(bit % 32)) & 1)
    return out


@cache
def _jumps() -> list[Words]:
    """The maps that jump over 1, 2, 4 ... 2048 states."""
    bits = np.arange(_BITS)
    step = np.zeros((5, _BITS), np.uint32)
    step[bits // 32, bits] = np.uint32(1) << (bits % 32).astype(np.uint32)
    _step(step)
    powers = [step.T]
    for _ in range(_APART + 11):
        powers.append(_apply(powers[-1], powers[-1].T).T)
    return powers[_APART:]


class Xorwow:
    """The generator after ``curandSetPseudoRandomGeneratorSeed`` and an offset of 0."""

    def __init__(self, seed: int) -> None:
        low, high = (seed & 0xFFFFFFFF) ^ 0xAAD26B49, (seed >> 32) ^ 0xF7DCEFDD
        a, b = (1099087573 * low) & 0xFFFFFFFF, (2591861531 * high) & 0xFFFFFFFF
        first = [123456789 + a, 362436069 ^ a, 521288629 + b, 88675123 ^ b, 5783321 + a]
        states = np.array([[word & 0xFFFFFFFF] for word in first], np.uint32)
        for jump in _jumps():
            states = np.concatenate([states, _apply(jump, states)], axis=1)
        self._states = states
        self._counters = np.full(_STATES, (6615241 + a + b) & 0xFFFFFFFF, np.uint32)
        self._next = 0  # the state whose turn it is

    def words(self, count: int) -> Words:
        """32 bits each."""
        return self._deal(count, 1)[0]

    def uniform(self, count: int, dtype: Any) -> NDArray[Any]:
        """Numbers above 0 up to 1; those of float64 take two words of a state."""
        if np.dtype(dtype) == np.float32:
            return self.words(count).astype(np.float32) * np.float32(2.0**-32) + np.float32(2.0**-33)
        low, high = self._deal(count, 2).astype(np.uint64)
        return (low ^ (high << np.uint64(21))) * 2.0**-53 + 2.0**-54

    def _deal(self, count: int, each: int) -> Words:
        """``each`` words for each number, (each, count)."""
        out = np.empty((each, count), np.uint32)
        done = 0
        while done < count:
            n = min(count - done, _STATES - self._next)
            some = slice(self._next, self._next + n)
            states, counters = self._states[:, some], self._counters[some]
            for row in out[:, done : done + n]:
                _step(states)
                counters += np.uint32(362437)
                np.add(states[4], counters, out=row)
            done += n
            self._next = (self._next + n) % _STATES
        return out
