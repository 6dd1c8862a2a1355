"""Kind ``gpumode``: heads, copies and values in GPU mode (FORMAT-gpumode.md), of layers, nets, solvers and blobs."""

from __future__ import annotations

from conformance.cases import Case, CaseError, Recording
from conformance.engines import Engine
from conformance.files import fresh_folder, working_directory
from conformance.gpumode import RUNS
from conformance.gpumode.judging import draws_of, judge
from conformance.gpumode.limits import moved_parameters

__all__ = ["judge", "play"]


_SHAKEN = 2  # runs with parameters that are moved, where that decides bounds


def play(case: Case, engine: Engine) -> Recording:
    """What the case records, by the same names. Beside that

    ``values["drawn"]``: type and size of what was drawn on the device; ``values["shaken"]``: the same run of a net or
    solver with parameters moved by a unit in their last place, some times.
    """
    got = _played(case, engine)
    shaken = range(_SHAKEN) if case.given["run"] in ("net", "solver") else ()
    got.values["shaken"] = [_played(moved_parameters(case, number), engine) for number in shaken]
    return got


def _played(case: Case, engine: Engine) -> Recording:
    run = RUNS.get(case.given["run"])
    if run is None:
        raise CaseError(f"{case.folder}: {case.given['run']!r} is no run of kind gpumode")
    with fresh_folder(case) as folder, working_directory(folder), engine.gpumode(case.upstream) as world:
        world.draws = [case.recorded_array(name) for name in draws_of(case)]
        if case.seed is not None:
            world.set_random_seed(case.seed)
        got = run(case, world)
    got.values["drawn"] = world.drawn
    return got
