"""``refcaffe compare``: where two runs of a net part."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status: 0 equal within bounds, 1 the runs part, 2 wrong usage."""
    from conformance.dumps.cli import main as compare

    return compare(arguments)
