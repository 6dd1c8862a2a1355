"""Finding and reading cases, broken ones too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.cases import CaseError, find_cases, matches, provenance, read_case, select


def test_a_case_has_what_its_json_says(make_case: Callable[..., Path]) -> None:
    folder = make_case("layer/pooling/max", {"x": np.arange(3)}, seed=7, exactness={"*": "blas", "data": "libm"})
    np.savez(folder / "given.npz", y=np.ones(2))
    case = read_case(folder)
    assert (case.id, case.kind, case.name, case.group) == (
        "layer/pooling/max",
        "layer",
        "pooling/max",
        "pooling",
    )
    assert (case.upstream, case.mode, case.seed) == ("bvlc-1.0-cpu", "CPU", 7)
    assert (case.exactness("data"), case.exactness("diff")) == ("libm", "blas")
    assert case.recorded.arrays["x"].tolist() == [0, 1, 2] and case.given_arrays["y"].tolist() == [1, 1]


def test_without_a_word_everything_is_bitwise(rng_case: Path) -> None:
    assert read_case(rng_case).exactness("data") == "bitwise"


def test_cases_are_found_at_any_depth_and_in_order(make_case: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("net/b/two", "layer/z/one", "layer/a/one"):
        make_case(name)
    assert [case.id for case in find_cases(tmp_path)] == ["layer/a/one", "layer/z/one", "net/b/two"]
    assert [case.id for case in find_cases(tmp_path / "net")] == ["net/b/two"]
    assert [case.id for case in find_cases(tmp_path / "net" / "b" / "two")] == ["net/b/two"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "cannot be read"),
        ("[]", "not a JSON object"),
        ('{"format": 2}', "format 2 is unknown"),
        ('{"format": 1, "kind": "net"}', "'name' is missing"),
        (
            '{"format":1,"kind":"../x","name":"a","upstream":"u","mode":"CPU","given":{},"recorded":{}}',
            "no kind of case",
        ),
        (
            '{"format":1,"kind":"net","name":"a","upstream":"u","mode":"CPU","given":[],"recorded":{}}',
            "'given' is missing or no object",
        ),
    ],
)
def test_a_broken_case_is_named_and_keeps_the_others(
    make_case: Callable[..., Path], tmp_path: Path, text: str, problem: str
) -> None:
    make_case("net/a/good")
    folder = make_case("net/a/bad")
    (folder / "case.json").write_text(text)
    bad, good = find_cases(tmp_path)
    assert good.problem == "" and problem in bad.problem and str(folder / "case.json") in bad.problem
    assert bad.id == "net/a/bad"


def test_a_broken_array_file_is_named(rng_case: Path) -> None:
    (rng_case / "recorded.npz").write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(CaseError, match=r"recorded\.npz: cannot be read"):
        _ = read_case(rng_case).recorded


def test_missing_array_files_are_no_arrays(make_case: Callable[..., Path]) -> None:
    case = read_case(make_case("net/a/b"))
    assert case.given_arrays == {} and case.recorded.arrays == {}


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        ("rng/gaussian/float-long", True),
        ("gaussian/float-long", True),
        ("rng/gaussian", True),
        ("gaussian", True),
        ("*-long", True),
        ("gaussian/*", True),
        ("*", True),
        ("gauss", False),
        ("rng/float-long", False),
        ("uniform/*", False),
    ],
)
def test_patterns(pattern: str, fits: bool) -> None:
    assert matches("rng/gaussian/float-long", pattern) is fits


def test_select_by_kind_and_pattern(make_case: Callable[..., Path], tmp_path: Path) -> None:
    for name in ("layer/a/one", "layer/a/two", "net/a/one"):
        make_case(name)
    cases = find_cases(tmp_path)
    assert [case.id for case in select(cases, ["layer"])] == ["layer/a/one", "layer/a/two"]
    assert [case.id for case in select(cases, [], ["*/one"])] == ["layer/a/one", "net/a/one"]
    assert [case.id for case in select(cases, ["net"], ["two", "one"])] == ["net/a/one"]


def test_provenance_is_found_above_the_cases(tmp_path: Path) -> None:
    assert provenance(tmp_path) == {}
    (tmp_path / "provenance.json").write_text('{"recorded": "today"}')
    (tmp_path / "rng").mkdir()
    assert provenance(tmp_path / "rng") == {"recorded": "today"}


def test_folders_are_absolute(rng_case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases run in folders of their own, where a relative name would mean another file."""
    monkeypatch.chdir(rng_case.parent)
    (case,) = find_cases(Path(rng_case.name))
    assert case.folder.is_absolute() and case.id == "rng/raw/three"
