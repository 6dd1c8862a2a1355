"""In which order GNU's std::sort leaves equal keys; the expected orders are those of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.layers.sort_order import sort_order

GNU = {
    "21212222010200011": [14, 13, 12, 10, 8, 16, 15, 9, 3, 1, 7, 6, 5, 11, 4, 2, 0],
    "130101321310131100111122": [
        2, 17, 4, 16, 11, 20, 18, 15, 14, 19, 12, 10, 8, 21, 5, 3, 0, 23, 22, 7, 13, 9, 6, 1
    ],
    "0222002011011001011220222101111210112001": [
        10, 0, 21, 33, 16, 14, 13, 26, 7, 5, 4, 37, 38, 28, 27, 15, 25, 29, 32, 34, 30, 35, 18, 17, 12, 11, 9, 8, 39,
        20, 36, 31, 24, 23, 22, 19, 6, 3, 2, 1,
    ],
}  # fmt: skip


@pytest.mark.parametrize("keys", GNU)
def test_orders_of_gnu(keys: str) -> None:
    assert sort_order(list(map(int, keys))) == GNU[keys]


@given(st.lists(st.integers(0, 6), max_size=120))
def test_keys_rise_and_each_comes_once(keys: list[int]) -> None:
    order = sort_order(keys)
    assert sorted(order) == list(range(len(keys)))
    assert [keys[i] for i in order] == sorted(keys)


@given(st.lists(st.integers(0, 3), max_size=16))
def test_up_to_16_keys_keep_their_order(keys: list[int]) -> None:
    assert sort_order(keys) == sorted(range(len(keys)), key=keys.__getitem__)
