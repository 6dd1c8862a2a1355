"""Kind ``snapshot``: files read and written (FORMAT-snapshot.md), also by solvers led from recorded states."""

from conformance.kinds.solver import judge, play

__all__ = ["judge", "play"]
