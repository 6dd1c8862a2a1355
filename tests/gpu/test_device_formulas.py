"""Which recordings of the host are compared otherwise on a device, and that only those are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.cases import Case, find_cases
from conformance.cli import UsageError, default_fixtures
from conformance.device_formulas import KINDS, ON_CUDA, RULES, Effect, Leniency, leniency
from conformance.engines import make_engine
from conformance.outcome import Status
from conformance.run import run_case

LAYER = 'layer {{ name: "l" type: "{}" bottom: "x" top: "y" {} }}'


@pytest.fixture
def case(tmp_path: Path) -> Callable[..., Case]:
    def make(text: str, given: dict[str, Any] | None = None, kind: str = "layer", **arrays: np.ndarray) -> Case:
        (tmp_path / "layer.prototxt").write_text(text, encoding="utf-8")
        document = {"given": given or {}, "recorded": {}, "mode": "CPU", "upstream": "bvlc-1.0"}
        if arrays:
            np.savez(tmp_path / "given.npz", **arrays)  # type: ignore[arg-type]
        return Case(tmp_path, kind, "made", document)

    return make


def test_on_the_host_there_are_no_rules(case: Callable[..., Case]) -> None:
    assert leniency(case(LAYER.format("ReLU", "")), "cpu").rules == ()


def test_a_layer_with_the_same_formula_has_no_rule(case: Callable[..., Case]) -> None:
    assert leniency(case(LAYER.format("InnerProduct", "")), "fake").rules == ()


def test_a_rule_holds_for_its_layer(case: Callable[..., Case]) -> None:
    found = leniency(case(LAYER.format("ReLU", "")), "fake")
    assert [rule.effect for rule in found.rules] == [Effect.ZEROS]
    assert found.allows(Effect.ZEROS, "top")
    assert not found.allows(Effect.VALUES, "top")
    assert not found.refusal
    assert found.reasons == "on a device ReLU chooses x or slope * x, and adds nothing to it"


def test_first_names_of_types_are_known(case: Callable[..., Case]) -> None:
    found = leniency(case("layers { type: CONTRASTIVE_LOSS contrastive_loss_param { legacy_version: true } }"), "fake")
    assert [rule.types for rule in found.rules] == [("ContrastiveLoss",)]


def test_a_rule_may_need_a_parameter(case: Callable[..., Case]) -> None:
    assert not leniency(case(LAYER.format("Eltwise", "eltwise_param { operation: SUM }")), "fake").rules
    found = leniency(case(LAYER.format("Eltwise", "eltwise_param { operation: MAX }")), "fake")
    assert found.allows(Effect.VALUES, "bottom_diff")
    assert not found.allows(Effect.VALUES, "top")


def test_a_rule_may_need_values(case: Callable[..., Case]) -> None:
    assert not leniency(case(LAYER.format("Clip", ""), x=np.ones(3, np.float32)), "fake").rules
    found = leniency(case(LAYER.format("Clip", ""), x=np.array([1, np.nan], np.float32)), "fake")
    assert found.allows(Effect.VALUES, "top")


def test_a_rule_may_need_a_phase(case: Callable[..., Case]) -> None:
    assert not leniency(case(LAYER.format("Dropout", ""), {"phase": "TEST"}), "fake").rules
    assert leniency(case(LAYER.format("Dropout", ""), {"phase": "TRAIN"}), "fake").rules


def test_stochastic_pooling_is_refused_by_the_host(case: Callable[..., Case]) -> None:
    assert leniency(case(LAYER.format("Pooling", "pooling_param { pool: STOCHASTIC }")), "fake").refusal


def test_cuda_has_functions_of_its_own(case: Callable[..., Case]) -> None:
    assert leniency(case(LAYER.format("InnerProduct", "")), "cuda").rules == (ON_CUDA,)


def test_a_solver_without_a_type_is_sgd(case: Callable[..., Case]) -> None:
    assert leniency(case("base_lr: 1", kind="solver"), "fake").allows(Effect.ROUNDING, "params")


def test_no_rules_allow_nothing() -> None:
    assert not any(Leniency().allows(effect, "top") for effect in Effect)


def recorded_cases() -> list[Case]:
    try:
        folder = default_fixtures()
    except UsageError:
        return []
    return [case for kind in KINDS for case in find_cases(folder / kind)]


def test_every_rule_is_needed_and_few_cases_need_one() -> None:
    cases = recorded_cases()
    if not cases:
        pytest.skip("there are no recorded cases here")
    used: Counter[str] = Counter()
    values = 0
    for case in cases:
        rules = leniency(case, "fake").rules
        used.update(rule.reason for rule in rules)
        values += any(rule.effect in (Effect.VALUES, Effect.REFUSAL) for rule in rules)
    assert set(used) == {rule.reason for rule in RULES}
    assert values < len(cases) / 10  # where numbers are not compared


def test_without_its_rule_a_case_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [case for case in recorded_cases() if case.kind == "layer" and "relu" in case.name]
    if not found:
        pytest.skip("there are no recorded cases here")
    engine = make_engine("refcaffe", "fake")
    assert all(run_case(case, engine).status is Status.PASSED for case in found)
    monkeypatch.setattr("conformance.run.leniency", lambda case, device: Leniency((), device))
    assert any(run_case(case, engine).status is Status.FAILED for case in found)
