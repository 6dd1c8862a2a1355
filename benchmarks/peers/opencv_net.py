"""OpenCV's side of the measurement: its importer of Caffe nets, forward only. Not there from OpenCV 5 on.

Started with any Python that has OpenCV 4. Reads lines: first a JSON object with ``prototxt``, ``caffemodel``, ``shape``
and ``threads``, then ``forward``; answers each of these with the seconds it took.
"""

from __future__ import annotations

import json
import sys

import cv2
import numpy as np
from timing import mean_seconds


def main() -> None:
    given = json.loads(sys.stdin.readline())
    cv2.setNumThreads(given["threads"])
    net = cv2.dnn.readNetFromCaffe(given["prototxt"], given["caffemodel"])
    data = np.random.default_rng(1).standard_normal(given["shape"]).astype(np.float32)

    def run() -> None:
        net.setInput(data, "data")
        net.forward()

    for _ in sys.stdin:
        print(mean_seconds(run), flush=True)


if __name__ == "__main__":
    main()
