"""docs/gpu.md says what is so: the list of differences, and the tables of copies, from recordings and from a pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conformance.cases import find_cases
from conformance.cli import UsageError, default_fixtures
from conformance.device_formulas import RULES
from refcaffe.cli.trace import totals
from refcaffe.cli.trace_svg import drawing
from refcaffe.device import FakeRuntime
from refcaffe.net import Net
from refcaffe.net.trace import Step, Tracer
from refcaffe.proto import caffe_pb2

ROOT = Path(__file__).parents[2]
LENET = ROOT / "benchmarks/models/lenet.prototxt"


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "docs/gpu.md").read_text(encoding="utf-8")


def test_the_list_of_differences_is_the_one_that_decides(text: str) -> None:
    table = text.partition("| layer or solver |")[2].partition("\n\n")[0].splitlines()[2:]
    assert table == [
        f"| {', '.join(rule.types)}{' (gradients)' * rule.gradients} | {rule.reason} | {rule.effect.value} |"
        for rule in RULES
    ]


def recorded_rows(recorded: dict[str, Any]) -> list[str]:
    """The rows of a table, from the second iteration of a case."""
    types = dict(recorded["layers"])
    back = {step["layer"]: step["copies"] for step in recorded["i1"]["backward"]}
    found = []
    for step in recorded["i1"]["forward"]:
        forward = [_copies(step["copies"])] if step["copies"] else []
        if step.get("prefetch_copies"):
            moved = (f"{way} {nbytes}" for way, nbytes, *_ in step["prefetch_copies"])
            forward.append(f"prefetch thread: {', '.join(moved)}")
        cells = "; ".join(forward), _copies(back.get(step["layer"], []))
        if any(cells):
            found.append(f"| {step['layer']} ({types[step['layer']]}) | {' | '.join(cells)} |")
    return found


def _copies(copies: list[list[Any]]) -> str:
    return ", ".join(f"{way} {nbytes} {' → '.join(ends)}" for way, nbytes, *ends in copies)


@pytest.mark.parametrize("name", ["lenet-data-train", "resnet-train"])
def test_tables_of_copies_are_the_recorded_ones(name: str, text: str) -> None:
    try:
        cases = find_cases(default_fixtures() / "gpumode" / "net" / name)
    except UsageError:
        cases = []
    if not cases:
        pytest.skip("there are no recorded cases here")
    table = text.partition(f"gpumode/net/{name}`")[2].partition("| --- | --- | --- |\n")[2].partition("\n\n")[0]
    assert table.splitlines() == recorded_rows(cases[0].recorded.values)


@pytest.fixture
def lenet(fake: FakeRuntime) -> list[list[Step]]:
    if not LENET.exists():
        pytest.skip("benchmarks are not here")
    with Net(str(LENET), caffe_pb2.TRAIN) as net:
        tracer = Tracer(net, fake)
        return [tracer.run() for _ in range(3)]


def test_lenet_copies_as_much_as_is_said(lenet: list[list[Step]], text: str) -> None:
    found = [" ".join(totals(copy for step in steps for copy in step.copies)).split() for steps in lenet]
    assert found[2] == found[1]
    for name, words in (("first", found[0]), ("second and later", found[1])):
        # D2D n copies m bytes H2D n copies m bytes
        assert words[0::5] == ["D2D", "H2D"]
        within, up = (f"{' '.join(words[i : i + 2])}, {' '.join(words[i + 2 : i + 4])}" for i in (1, 6))
        assert f"| {name} | {up} | {within} | none |" in text


def test_the_picture_is_what_trace_draws(lenet: list[list[Step]]) -> None:
    # The file is what the command in the page wrote.
    expected = (ROOT / "docs/trace-lenet.svg").read_text(encoding="utf-8")
    assert drawing("LeNet, TRAIN, pass 2, device fake", lenet[1]) == expected
