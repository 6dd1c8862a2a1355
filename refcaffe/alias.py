"""Modules by pycaffe's names: ``refcaffe.io`` for ``refcaffe.pycaffe.io``, and, when asked, ``caffe`` for refcaffe."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType

# pycaffe's modules, which are found one level higher than they lie.
SURFACE = ("classifier", "coord_map", "detector", "draw", "io", "net_spec")


class _Aliases:
    """A finder and loader that gives an alias the module itself: there is one of each, however it was imported."""

    caffe = False  # whether names that begin with ``caffe.`` are ours

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if _meant(name) is None else ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module = importlib.import_module(_meant(spec.name) or "")
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the alias's spec; the module's own belongs there.
        module.__spec__ = module.__spec__.loader_state if module.__spec__ else None


_aliases = _Aliases()


def _meant(name: str) -> str | None:
    """The real name behind an alias; None if the name is no alias."""
    package, _, rest = name.partition(".")
    if package == "refcaffe" and rest in SURFACE:
        return f"refcaffe.pycaffe.{rest}"
    if package == "caffe" and rest and _aliases.caffe:
        return _meant(f"refcaffe.{rest}") or f"refcaffe.{rest}"
    return None


def install() -> None:
    """Have ``refcaffe.io`` and the like found."""
    if _aliases not in sys.meta_path:
        sys.meta_path.insert(0, _aliases)


def install_as_caffe() -> None:
    """From now on ``import caffe``, ``from caffe.proto import caffe_pb2`` and the like give refcaffe.

    RuntimeError if another caffe has been imported already.
    """
    refcaffe = importlib.import_module("refcaffe")
    if sys.modules.setdefault("caffe", refcaffe) is not refcaffe:
        where = getattr(sys.modules["caffe"], "__file__", None)
        raise RuntimeError(f"another caffe has been imported already: {where}")
    _aliases.caffe = True
    install()


@contextmanager
def as_caffe() -> Iterator[None]:
    """``install_as_caffe`` for the time of a ``with`` block, if it was not done before."""
    before, there = _aliases.caffe, set(sys.modules)
    install_as_caffe()
    try:
        yield
    finally:
        _aliases.caffe = before
        for name in [] if before else set(sys.modules) - there:
            if name.partition(".")[0] == "caffe":
                del sys.modules[name]
