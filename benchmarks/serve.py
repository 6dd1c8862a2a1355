"""refcaffe's side of the measurement: reads lines, first a JSON object with ``name`` and ``batch``, then passes."""

from __future__ import annotations

import json
import sys
import time

from benchmarks.nets import load, runner


def main() -> None:
    given = json.loads(sys.stdin.readline())
    net = load(given["name"], given["batch"])
    for line in sys.stdin:
        run = runner(net, line.strip())
        start = time.perf_counter()
        run()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
