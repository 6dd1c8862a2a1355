"""``rand()`` of the GNU C library: the one generator that HDF5Data layers share, whatever the seed of Caffe's own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import MutableSequence
from typing import Any

RAND_MAX = 2**31 - 1

_LAGS = 3, 31
_DISCARDED = 310

_lock = threading.Lock()
_state: deque[int] = deque(maxlen=_LAGS[1])


def _step() -> int:
    word = (_state[-_LAGS[0]] + _state[-_LAGS[1]]) % 2**32
    _state.append(word)
    return word


def srand(seed: int) -> None:
    """Start anew; a process that never does begins as after ``srand(1)``."""
    word = (seed or 1) % 2**32
    with _lock:
        word -= 2**32 if word >= 2**31 else 0
        words = [word]
        for _ in range(_LAGS[1] - 1):
            high = abs(word) // 127773 * (-1 if word < 0 else 1)  # C's division
            word = 16807 * (word - high * 127773) - 2836 * high
            word += RAND_MAX if word < 0 else 0
            words.append(word)
        # The lag of three begins there.
        _state.extend(word % 2**32 for word in words[-_LAGS[1] :])
        for i in range(_LAGS[0]):
            _state.append(words[i] % 2**32)
        for _ in range(_DISCARDED):
            _step()


def rand() -> int:
    """The next number, 0 ... RAND_MAX."""
    with _lock:
        return _step() >> 1


def random_shuffle(values: MutableSequence[Any]) -> None:
    """Shuffle in place, as ``std::random_shuffle`` of the GNU C++ library does."""
    for i in range(1, len(values)):
        j = rand() % (i + 1)
        values[i], values[j] = values[j], values[i]


srand(1)
