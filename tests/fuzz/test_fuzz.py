"""A short run of the fuzzer; ``python -m tests.fuzz.run --count N --seed S`` runs more."""

from __future__ import annotations

import sys

import pytest

from tests.fuzz.corpus import FIXTURES

pytestmark = [
    pytest.mark.skipif(not FIXTURES.exists(), reason="the recorded cases are not here"),
    pytest.mark.skipif(sys.platform != "linux", reason="memory and threads are watched through /proc"),
]


def test_damaged_files_are_read_or_refused() -> None:
    from tests.fuzz.run import SHARES, fuzz

    report = fuzz(count=1500, seed=20, jobs=1)
    assert not report.found, "\n".join(
        f"{what} at {where}, input {found['target']}:{found['number']}\n{found['text']}"
        for (what, where), found in report.found.items()
    )
    assert report.played == 1500
    outcomes = {outcome for _, outcome in report.outcomes}
    assert outcomes == {"accepted", "refused"}
    assert len(SHARES) == 3
    assert len(report.messages) > 50  # it gets everywhere


def test_an_input_is_made_of_its_seed_and_number() -> None:
    from random import Random

    from tests.fuzz.targets import TARGETS, Maker

    for target in TARGETS:
        first, again = (Maker().make(target, Random("7")) for _ in range(2))
        assert first == again
