"""Every shipped case of the kinds that have a runner, one test each, on refcaffe and the device of REFCAFFE_DEVICE.

``-k layer/pooling/max`` picks cases, as does an id: ``test_fixtures.py::test_case[layer/pooling/max-ties]``.
"""

from __future__ import annotations

import os

import pytest

from conformance import kinds
from conformance.cases import Case, find_cases, select
from conformance.cli import UsageError, default_fixtures
from conformance.engines import Engine, make_engine
from conformance.outcome import Status
from conformance.run import run_case


def _cases() -> list[Case]:
    try:
        folder = default_fixtures()
    except UsageError:
        return []
    return select(find_cases(folder), kinds.supported())


@pytest.fixture(scope="module")
def engine() -> Engine:
    return make_engine("refcaffe", os.environ.get("REFCAFFE_DEVICE", "cpu"))


@pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in _cases()])
def test_case(case: Case, engine: Engine) -> None:
    outcome = run_case(case, engine)
    if outcome.status is Status.UNSUPPORTED:
        pytest.skip(f"not yet supported: {outcome.reason}")
    assert outcome.status is Status.PASSED, str(outcome)
