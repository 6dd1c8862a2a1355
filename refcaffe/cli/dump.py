"""``refcaffe dump``: every blob of a pass as a folder of ``.npy`` files, by the same script that runs in any Caffe."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources

import refcaffe
from refcaffe.cli import dump_in_caffe


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status. ``--print-script`` prints the script for a real Caffe."""
    if "--print-script" in arguments:
        print((resources.files("refcaffe.cli") / "dump_in_caffe.py").read_text(encoding="utf-8"), end="")
        return 0
    return dump_in_caffe.main(list(arguments), refcaffe)
