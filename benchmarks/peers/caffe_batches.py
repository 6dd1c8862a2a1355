"""Original Caffe's side of the measurement of prefetching, with any Python that has ``caffe``.

Reads lines: first a JSON object with ``model``, then numbers of batches; answers each of these with the seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time

os.environ["GLOG_minloglevel"] = "2"  # noqa: SIM112 (glog reads it in this spelling)

import caffe


def main() -> None:
    net = caffe.Net(json.loads(sys.stdin.readline())["model"], caffe.TRAIN)
    for line in sys.stdin:
        for _ in range(8):  # those made in advance
            net.forward()
        start = time.perf_counter()
        for _ in range(int(line)):
            net.forward()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
