"""NCCL, by which pycaffe trains on several GPUs. There is none here: the names are there to say so."""

from __future__ import annotations

from typing import Any, NoReturn


def has_nccl() -> bool:
    """Whether training on several GPUs is there: no."""
    return False


class NCCL:
    """Refuses to be made."""

    def __init__(self, solver: Any, uid: str) -> None:
        _refuse()

    @staticmethod
    def new_uid() -> NoReturn:
        _refuse()


def _refuse() -> NoReturn:
    raise NotImplementedError("refcaffe has no NCCL: it trains on one GPU; refcaffe.has_nccl() tells")
