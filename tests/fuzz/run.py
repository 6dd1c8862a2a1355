"""The fuzzer: ``python -m tests.fuzz.run --count N --seed S [--jobs J]``, from the repository's root.

Inputs are numbered; seed and number make an input. Exit status 1 if anything was found: an error that is no
CheckError, or one that does not say where; a crash; more than 5 seconds; memory, threads or files left behind. Each
finding is shown with the command that plays it again (``--only TARGET:NUMBER``, ``--save FILE`` keeps the input).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_MOST_DEATHS = 30
SHARES = {"text": 0.4, "binary": 0.4, "hdf5": 0.2}
_ROOT = Path(__file__).parents[2]


@dataclass
class Report:
    """What came of the inputs: ``found`` holds one of each kind, with how often it was seen.

    ``grown``: the bytes that memory grew by at most, without four times the input's size.
    """

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)  # by kind of input and outcome
    messages: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    grown: int = 0
    seconds: float = 0.0
    most_seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, result: dict[str, Any]) -> None:
        with self._lock:
            self.outcomes[result["kind"], result["outcome"]] += 1
            self.grown = max(self.grown, result.get("grown", 0) - 4 * result.get("size", 0))
            self.seconds += result.get("seconds", 0)
            self.most_seconds = max(self.most_seconds, result.get("seconds", 0))
            if result["outcome"] == "refused":
                self.messages[result["message"].split(" (")[0][:60]] += 1
            if result["outcome"] == "found":
                known = self.found.setdefault((result["what"], result["where"]), {**result, "times": 0})
                known["times"] += 1

    @property
    def played(self) -> int:
        return sum(self.outcomes.values())


def _play(seed: int, target: str, first: int, last: int, report: Report) -> None:
    """Play a range of inputs; after a process has died of one, go on behind it, but not for ever."""
    for _ in range(_MOST_DEATHS):
        if first >= last:
            return
        command = [sys.executable, "-X", "faulthandler", "-W", "error", "-m", "tests.fuzz.worker"]
        arguments = [str(seed), target, str(first), str(last)]
        with tempfile.TemporaryFile("w+") as complaints:
            with subprocess.Popen(
                [*command, *arguments], cwd=_ROOT, stdout=subprocess.PIPE, stderr=complaints, text=True
            ) as process:
                assert process.stdout
                for line in process.stdout:
                    result = json.loads(line)
                    report.add({"target": target, **result})
                    first = result["number"] + 1
            if process.returncode == 0:
                return
            complaints.seek(0)
            text = complaints.read()
        report.add(_death(process.returncode, text) | {"target": target, "number": first, "kind": target})
        first += 1


def _death(status: int, text: str) -> dict[str, Any]:
    """What killed a process, and where, as faulthandler wrote it."""
    frames = [line.strip() for line in text.splitlines() if "/refcaffe/" in line and line.lstrip().startswith("File")]
    where = frames[0].partition("/refcaffe/")[2] if frames else "outside"
    return {"outcome": "found", "what": f"process ended with status {status}", "where": where, "text": text[-4000:]}


def fuzz(count: int, seed: int, jobs: int = 1, targets: tuple[str, ...] = tuple(SHARES), start: int = 0) -> Report:
    """Play ``count`` inputs, from number ``start`` on of each target, in ``jobs`` processes at a time."""
    report, whole = Report(), sum(SHARES[target] for target in targets)
    for target in targets:
        numbers = round(count * SHARES[target] / whole)
        borders = [start + numbers * i // jobs for i in range(jobs + 1)]
        threads = [
            threading.Thread(target=_play, args=(seed, target, borders[i], borders[i + 1], report)) for i in range(jobs)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return report


def show(report: Report, seed: int) -> None:
    """Print counts and findings."""
    for (kind, outcome), times in sorted(report.outcomes.items()):
        print(f"{kind:12} {outcome:10} {times:7}")
    print(f"{report.played} inputs, {len(report.messages)} different messages")
    print(f"memory grew by {report.grown / 2**20:.1f} MiB + 4 x the input at most")
    print(f"{report.seconds:.0f} s of processor time, {report.most_seconds:.2f} s at most for one input")
    for (what, where), found in report.found.items():
        print(f"\n--- {what} at {where}: {found['times']} times; {found.get('file', '')}\n{found['text']}")
        print(f"python -m tests.fuzz.run --seed {seed} --only {found['target']}:{found['number']}")


def play_one(seed: int, target: str, number: int, save: str | None) -> dict[str, Any]:
    """Play an input in this process."""
    from tests.fuzz.worker import Worker

    with tempfile.TemporaryDirectory() as scratch:
        worker = Worker(seed, target, Path(scratch))
        if save:
            Path(save).write_bytes(worker.input(number).data)
        return worker.play(number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="inputs (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--start", type=int, default=0, help="number of the first input of each target")
    parser.add_argument("--target", choices=SHARES, action="append", help="only these (default: all)")
    parser.add_argument("--only", metavar="TARGET:NUMBER", help="play one input, in this process")
    parser.add_argument("--save", metavar="FILE", help="with --only: write the input there")
    given = parser.parse_args()
    if given.only:
        target, number = given.only.split(":")
        result = play_one(given.seed, target, int(number), given.save)
        print("\n".join(f"{name}: {value}" for name, value in result.items()))
        return int(result["outcome"] == "found")
    report = fuzz(given.count, given.seed, given.jobs, tuple(given.target or SHARES), given.start)
    show(report, given.seed)
    return int(bool(report.found))


if __name__ == "__main__":
    sys.exit(main())
