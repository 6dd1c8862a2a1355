"""The JSON Schema of case.json: right for every shipped case, and strict enough to find what is wrong."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance import cli, kinds
from conformance.cases import find_cases
from conformance.schema import problems

pytest.importorskip("jsonschema")
FIXTURES = cli.default_fixtures()
KINDS = sorted(path.name for path in FIXTURES.iterdir() if path.is_dir())


@pytest.mark.parametrize("kind", KINDS)
def test_every_shipped_case_is_valid(kind: str) -> None:
    wrong = {case.id: found for case in find_cases(FIXTURES / kind) if (found := problems(case.document))}
    assert wrong == {}


def test_every_kind_has_a_schema() -> None:
    folder = Path(problems.__code__.co_filename).parent
    assert set(kinds.supported()) <= {path.name.partition(".")[0] for path in folder.glob("*.schema.json")}


def relu() -> dict[str, Any]:
    return json.loads((FIXTURES / "layer/relu/default/case.json").read_text())


CHANGES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda d: d.update(format=2), "$.format"),
    (lambda d: d.pop("upstream"), "'upstream' is a required property"),
    (lambda d: d.update(mode="TPU"), "$.mode"),
    (lambda d: d.update(kind="layers"), "$.kind"),
    (lambda d: d.update(seed=-1), "$.seed"),
    (lambda d: d.update(sed=1), "'sed' was unexpected"),
    (lambda d: d.update(name="relu"), "$.name"),
    (lambda d: d["given"].update(phase="train"), "$.given.phase"),
    (lambda d: d["given"].pop("steps"), "'steps' is a required property"),
    (lambda d: d["given"]["steps"].append("sideways"), "$.given.steps"),
    (lambda d: d["given"]["bottoms"][0].pop("shape"), "'shape' is a required property"),
    (lambda d: d["given"]["bottoms"][0].update(shape=[2.5]), "$.given.bottoms[0].shape[0]"),
    (lambda d: d["recorded"].update(untouched="x"), "$.recorded.untouched"),
    (lambda d: d["exactness"].update(data="close"), "$.exactness.data"),
]


@pytest.mark.parametrize(("change", "message"), CHANGES)
def test_what_is_wrong_is_found(change: Callable[[dict[str, Any]], Any], message: str) -> None:
    document = copy.deepcopy(relu())
    assert problems(document) == []
    change(document)
    assert any(message in problem for problem in problems(document)), problems(document)


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "teleport"}, "'teleport' is not one of"),
        ({"op": "net", "phase": "TRAIN"}, "'model' is a required property"),
        ({"op": "forward", "form": "x"}, "'form' was unexpected"),
        ({"op": "dump", "as": "a", "what": ["everything"]}, "'everything' is not one of"),
    ],
)
def test_operations_are_checked(operation: dict[str, Any], message: str) -> None:
    document = {**relu(), "kind": "net", "given": {"ops": [operation]}, "recorded": {}, "exactness": {"*": "bitwise"}}
    assert any(message in problem for problem in problems(document))


def test_the_command(make_case: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_case("rng/a/b", given={"scripts": []}, recorded={"scripts": []})
    assert cli.main(["check", "--fixtures", str(tmp_path)]) == 0
    make_case("rng/a/c", given={"scripts": "none"}, recorded={"scripts": []})
    (make_case("rng/a/d") / "case.json").write_text("[")
    assert cli.main(["check", "--fixtures", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "rng/a/c: $.given.scripts: 'none' is not of type 'array'" in out and "rng/a/d: " in out
