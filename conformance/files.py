"""Files and folders while a case runs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conformance.cases import Case

_NOT_GIVEN = shutil.ignore_patterns("case.json", "recorded.npz", "given.npz", "spread.npz", "out")


@contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    """Be in a folder, as the recording was: relative names in a case mean its own files."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def fresh_folder(case: Case) -> Iterator[Path]:
    """A new folder with the files that the case gives, on the Python path; modules imported from it are forgotten."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as name:
        folder = Path(name).resolve()
        shutil.copytree(case.folder, folder, ignore=_NOT_GIVEN, dirs_exist_ok=True)
        for new in case.given.get("mkdir", ()):
            (folder / new).mkdir(parents=True)
        sys.path.insert(0, str(folder))
        try:
            yield folder
        finally:
            sys.path.remove(str(folder))
            for module in [key for key, value in sys.modules.items() if _lies_in(folder, value)]:
                del sys.modules[module]


def _lies_in(folder: Path, module: Any) -> bool:
    # Not by getattr: a module that imports others when it is asked must not do so now.
    return str(getattr(module, "__dict__", {}).get("__file__")).startswith(str(folder))
