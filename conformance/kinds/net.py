"""Kind ``net``: whole nets (FORMAT-net.md)."""

from conformance.operations import judge, play

__all__ = ["judge", "play"]
