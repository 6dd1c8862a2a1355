"""The operations that the kinds net, solver, snapshot and error share (FORMAT-net.md, -solver.md, -snapshot.md).

``world`` plays a list of them; there is one file per family: ``nets``, ``solvers``, ``files``. ``rows`` is what one
call of Step records, and the guide that leads a run from recorded state to recorded state. ``judging`` compares, with
the bounds of ``spread``: log lines by ``logs``, rows by ``steps``.
"""

from __future__ import annotations

from conformance.operations.judging import judge, trained
from conformance.operations.world import play

__all__ = ["judge", "play", "trained"]
