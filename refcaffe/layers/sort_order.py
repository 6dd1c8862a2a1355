"""The order in which C++'s ``std::sort`` (GNU's) leaves elements with equal keys, which decides how sums are rounded.

Quicksort around the median of three down to runs of 16 elements, then one insertion sort. Its way out for hostile
orders, heapsort, is not reproduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

K = TypeVar("K", int, float)

_SHORT = 16


def sort_order(keys: Sequence[K]) -> list[int]:
    """Indices of the keys in rising order; those of equal keys in the order in which the sort leaves them."""
    items = [(key, i) for i, key in enumerate(keys)]
    unsorted = [(0, len(items))]
    while unsorted:
        first, last = unsorted.pop()
        while last - first > _SHORT:
            _median_to_first(items, first, last)
            cut = _partition(items, first + 1, last, items[first][0])
            unsorted.append((cut, last))
            last = cut
    for end in range(1, len(items)):
        _insert(items, end)
    return [i for _, i in items]


def _median_to_first(items: list[tuple[K, int]], first: int, last: int) -> None:
    a, b, c = first + 1, first + (last - first) // 2, last - 1
    key_a, key_b, key_c = items[a][0], items[b][0], items[c][0]
    if key_a < key_b:
        middle = b if key_b < key_c else c if key_a < key_c else a
    else:
        middle = a if key_a < key_c else c if key_b < key_c else b
    items[first], items[middle] = items[middle], items[first]


def _partition(items: list[tuple[K, int]], first: int, last: int, pivot: K) -> int:
    """Smaller ones to the front, larger ones to the back; equal ones change sides. Returns where the back begins."""
    while True:
        while items[first][0] < pivot:
            first += 1
        last -= 1
        while pivot < items[last][0]:
            last -= 1
        if first >= last:
            return first
        items[first], items[last] = items[last], items[first]
        first += 1


def _insert(items: list[tuple[K, int]], end: int) -> None:
    item = items[end]
    while end > 0 and item[0] < items[end - 1][0]:
        items[end] = items[end - 1]
        end -= 1
    items[end] = item
