"""Whether the conformance suite would notice: refcaffe with an error planted must not pass the cases named for it.

The package is copied, edited there, and run by the copy's own ``python -m conformance`` on those cases alone.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import conformance
import refcaffe
from conformance.cli import UsageError, default_fixtures
from tests.mutation.mutations import MUTATIONS, Mutation

try:
    FIXTURES = default_fixtures()
except UsageError:
    pytest.skip("no recorded cases here", allow_module_level=True)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both packages, times and compiled files included, and the cases that are named."""
    folder = tmp_path_factory.mktemp("mutation")
    for package in (refcaffe, conformance):
        source = Path(package.__file__).parent
        shutil.copytree(source, folder / source.name)
    for case in {case for mutation in MUTATIONS for case in mutation.cases}:
        shutil.copytree(FIXTURES / case, folder / "fixtures" / case)
    return folder


def statuses(copy: Path, cases: list[str]) -> dict[str, str]:
    """What became of each case, by its id, with the copy."""
    command = [sys.executable, "-m", "conformance", "run", "--fixtures", "fixtures", "--json", "-"]
    for case in cases:
        command += ["--case", case]
    # Bytecode is told from newer source by whole seconds: edits come faster.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode in (0, 1), f"the suite did not run: {run.stderr}"
    return {outcome["case"]: outcome["status"] for outcome in json.loads(run.stdout)["cases"]}


def edited(mutation: Mutation, text: str) -> str:
    """The source with the error in it; AssertionError if there is no place for it any more."""
    for old, new in mutation.edits:
        found = text.count(old)
        assert found == 1, (
            f"mutation {mutation.name!r} cannot be planted: refcaffe/{mutation.file} holds {found} times\n{old}\n"
            "The code was rewritten: plant the same error in what has taken its place (tests/mutation/mutations.py)."
        )
        text = text.replace(old, new)
    return text


def test_without_mutations_all_of_their_cases_pass(copy: Path) -> None:
    cases = sorted({case for mutation in MUTATIONS for case in mutation.cases})
    found = statuses(copy, cases)
    assert sorted(found) == cases, "cases that are named but not there"
    assert {case: status for case, status in found.items() if status != "passed"} == {}


@pytest.mark.parametrize("mutation", [pytest.param(m, id=m.name.replace(" ", "-")) for m in MUTATIONS])
def test_the_suite_catches(mutation: Mutation, copy: Path) -> None:
    path = copy / "refcaffe" / mutation.file
    assert path.is_file(), f"mutation {mutation.name!r}: refcaffe/{mutation.file} is not there any more"
    original = path.read_bytes()
    mutated = edited(mutation, original.decode())
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()
    path.write_text(mutated)
    try:
        found = statuses(copy, list(mutation.cases))
    finally:
        path.write_bytes(original)
    assert found == dict.fromkeys(mutation.cases, "failed")


def test_there_are_enough_of_them() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(names) == len(set(names)) >= 30
