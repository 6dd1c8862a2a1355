"""refcaffe's side of the measurement: reads lines, first a JSON object with ``name`` and ``batch``, then passes."""

from __future__ import annotations

import json
import sys

from benchmarks.nets import load, runner
from benchmarks.peers.timing import mean_seconds


def main() -> None:
    given = json.loads(sys.stdin.readline())
    net = load(given["name"], given["batch"])
    for line in sys.stdin:
        print(mean_seconds(runner(net, line.strip())), flush=True)


if __name__ == "__main__":
    main()
