"""How far numbers of kind ``gpumode`` may be off."""

from __future__ import annotations

from typing import Any

from conformance.cases import Case


class Limits:
    """By the class that a case states."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.number_class = "blas"

    def exactness(self, name: str) -> str:
        """The class of an array."""
        stated = self.case.recorded.values.get("exactness", "bitwise")
        if isinstance(stated, str):
            return stated
        return stated["backward" if name.endswith("_diff") else "forward"]

    def of(self, name: str) -> Any:
        return 0.0

    def of_number(self, where: str, recorded: float) -> Any:
        return 0.0
