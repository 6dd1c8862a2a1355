"""docs/semantics: every statement names the cases that decide it, and they exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from conformance.cases import find_cases
from conformance.cli import UsageError, default_fixtures

PAGES = sorted((Path(__file__).parents[1] / "docs" / "semantics").glob("*.md"))
CASE = re.compile(r"`([a-z]+/[\w*-]+/[\w*-]+)`")
READ = "(source)"


@pytest.fixture(scope="module")
def names() -> list[str]:
    try:
        folder = default_fixtures()
    except UsageError:
        pytest.skip("no recorded cases here")
    return [case.id for case in find_cases(folder)]


def statements(text: str) -> Iterator[str]:
    """List items with their continuation lines, and rows of tables without their heads."""
    lines = text.split("\n")
    for i, line in enumerate(lines):
        if line.startswith("* "):
            item = [line]
            for more in lines[i + 1 :]:
                if not more.startswith("  "):
                    break
                item.append(more)
            yield " ".join(item)
        elif line.startswith("|") and not line.startswith("| ---") and not lines[i + 1].startswith("| ---"):
            yield line


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES])
def test_named_cases_exist(page: Path, names: list[str]) -> None:
    found = CASE.findall(page.read_text(encoding="utf-8"))
    assert found
    assert [case for case in found if not any(fnmatchcase(name, case) for name in names)] == []


@pytest.mark.parametrize("page", [pytest.param(page, id=page.name) for page in PAGES if page.name != "README.md"])
def test_every_statement_is_decided_by_something(page: Path) -> None:
    found = list(statements(page.read_text(encoding="utf-8")))
    assert len(found) > 15
    assert [statement for statement in found if not CASE.search(statement) and READ not in statement] == []


def test_the_index_has_all_pages() -> None:
    index = next(page for page in PAGES if page.name == "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name != "README.md" and f"]({page.name})" not in index] == []


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target, anchor in re.findall(r"\]\((\w+\.md)#([\w-]+)\)", page.read_text(encoding="utf-8")):
            headings = re.findall(r"^#+ (.*)$", (page.parent / target).read_text(encoding="utf-8"), re.MULTILINE)
            slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{page.name}: {target}#{anchor}"
