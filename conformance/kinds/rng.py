"""Kind ``rng``: scripts of calls on the CPU's random stream (FORMAT-rng.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.cases import Case, Recording
from conformance.engines import Engine
from conformance.outcome import Findings

_FLOATS = {"float": np.float32, "double": np.float64}
_INTEGERS = {"int": np.int32, "uint": np.uint32}


def play(case: Case, engine: Engine) -> Recording:
    """``values["scripts"]`` and the arrays, in the form that was recorded."""
    got = Recording({"scripts": []})
    for k, script in enumerate(case.given["scripts"]):
        stream: Any = None if case.seed is None else engine.stream(case.seed)
        results: list[dict[str, Any]] = []
        got.values["scripts"].append(results)
        try:
            for i, (name, *arguments) in enumerate(script):
                if name == "seed":
                    stream = engine.stream(*arguments)
                before = stream.draws
                values = _CALLS[name](engine, stream, *arguments)
                results.append({"draws": stream.draws - before, "next": stream.peek()})
                if values is not None and values.size:
                    results[-1]["array"] = f"s{k}.c{i}"
                    got.arrays[f"s{k}.c{i}"] = values
        except engine.Fatal as fatal:
            results.append({"fatal": {"file": fatal.file, "message": fatal.message}})
    return got


def judge(case: Case, got: Recording, findings: Findings) -> None:
    """Everything is bitwise, signs of zeros included."""
    recorded = case.recorded.values["scripts"]
    for k, script in enumerate(case.given["scripts"]):
        for i, call in enumerate(script):
            where = f"scripts[{k}][{i}] {_shown(call)}"
            steps = [scripts[k][i] if i < len(scripts[k]) else {} for scripts in (recorded, got.values["scripts"])]
            # The names of arrays are the recording's own affair: what counts is whether there is one.
            findings.value(where, *({**step, "array": "array" in step} for step in steps))
            if all("array" in step for step in steps):
                findings.array(where, case.recorded_array(steps[0]["array"]), got.arrays[steps[1]["array"]])
    findings.value("number of results", *([len(s) for s in scripts] for scripts in (recorded, got.values["scripts"])))


def _shown(call: list[Any]) -> str:
    text = f"{call[0]}({', '.join(map(str, call[1:]))})"
    return text if len(text) < 80 else f"{text[:76]} …)"


def _seed(engine: Engine, stream: Any, seed: int) -> None:
    pass  # play has made the new stream


def _rand(engine: Engine, stream: Any, n: int) -> np.ndarray:
    return stream.raws(n)


def _skip(engine: Engine, stream: Any, n: int) -> None:
    stream.skip(n)


def _uniform(engine: Engine, stream: Any, t: str, a: Any, b: Any, n: int) -> np.ndarray:
    out = np.empty(max(n, 0), _FLOATS[t])
    stream.uniform(n, _FLOATS[t](a), _FLOATS[t](b), out)
    return out


def _gaussian(engine: Engine, stream: Any, t: str, mu: Any, sigma: Any, n: int) -> np.ndarray:
    out = np.empty(max(n, 0), _FLOATS[t])
    stream.gaussian(n, _FLOATS[t](mu), _FLOATS[t](sigma), out)
    return out


def _bernoulli(engine: Engine, stream: Any, kind: str, t: str, p: Any, n: int) -> np.ndarray:
    out = np.empty(max(n, 0), _INTEGERS[kind])
    stream.bernoulli(n, _FLOATS[t](p), out)
    return out


def _shuffle(engine: Engine, stream: Any, n: int) -> np.ndarray:
    values = np.arange(n, dtype=np.int32)
    stream.shuffle(values)
    return values


def _shuffle_own(engine: Engine, stream: Any, seed: int, n: int) -> np.ndarray:
    return _shuffle(engine, engine.stream(seed), n)


def _sub_rng(engine: Engine, stream: Any, n: int) -> np.ndarray:
    return stream.sub_stream().raws(n)


def _nextafter(engine: Engine, stream: Any, t: str, values: list[Any]) -> np.ndarray:
    return np.array([engine.nextafter(_FLOATS[t](x)) for x in values], _FLOATS[t])


def _null(engine: Engine, stream: Any, call: str) -> None:
    arguments = {"uniform": (0.0, 1.0), "gaussian": (0.0, 1.0), "bernoulli": (0.5,)}[call]
    getattr(stream, call)(1, *map(np.float32, arguments), None)


_CALLS: dict[str, Callable[..., np.ndarray | None]] = {
    "seed": _seed,
    "rand": _rand,
    "skip": _skip,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "bernoulli": _bernoulli,
    "shuffle": _shuffle,
    "shuffle_own": _shuffle_own,
    "sub_rng": _sub_rng,
    "nextafter": _nextafter,
    "null": _null,
}
