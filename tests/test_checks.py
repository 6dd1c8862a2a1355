"""Messages as original Caffe's logging library words them."""

import pytest

from refcaffe.checks import Checker, CheckError

check = Checker("some.cpp")


def failure(call, *args):
    with pytest.raises(CheckError) as caught:
        call(*args)
    return caught.value


def test_a_condition():
    error = failure(check, 0, "data_")
    assert error.message == "Check failed: data_ "
    assert error.file == "some.cpp"
    check(1, "data_")


@pytest.mark.parametrize(
    ("name", "good", "bad", "sign"),
    [
        ("eq", (2, 2), (2, 3), "=="),
        ("ne", (2, 3), (2, 2), "!="),
        ("lt", (1, 2), (2, 2), "<"),
        ("le", (2, 2), (3, 2), "<="),
        ("gt", (3, 2), (2, 2), ">"),
        ("ge", (2, 2), (1, 2), ">="),
    ],
)
def test_a_comparison_shows_both_values(name, good, bad, sign):
    compare = getattr(check, name)
    compare(*good, f"a {sign} b")
    error = failure(compare, *bad, f"a {sign} b", "why")
    assert error.message == f"Check failed: a {sign} b ({bad[0]} vs. {bad[1]}) why"


def test_values_are_shown_as_a_stream_shows_them():
    error = failure(check.eq, 0.1 + 0.2, True, "a == b")
    assert error.message == "Check failed: a == b (0.3 vs. 1) "


def test_context_is_shown_but_not_part_of_the_message():
    error = failure(check.fatal, "No.").within("layer 'x'").within("net 'y'").within("layer 'x'")
    assert error.message == "No."
    assert str(error) == "No.\n  layer 'x'\n  net 'y'"
