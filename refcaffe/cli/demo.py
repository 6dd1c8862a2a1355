"""``refcaffe demo``: the whole way on real input, in about a minute.

Makes two LMDBs of handwritten digits, trains a small LeNet from them, draws its curves, tests it, and, in a checkout,
compares refcaffe with the recordings of original Caffe.
"""

from __future__ import annotations

import argparse
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import resources
from pathlib import Path

import numpy as np

from refcaffe.cli import plot
from refcaffe.cli.progress import training_progress
from refcaffe.cli.training_log import parse
from refcaffe.data import serialize, write
from refcaffe.glog import GlogFormatter
from refcaffe.solvers import create

TRAIN_IMAGES = 5000  # of the 6,000 shipped; the rest tests


def _records(images: np.ndarray, labels: np.ndarray) -> Iterator[tuple[bytes, bytes]]:
    """Keys and serialized Datums, numbered in order."""
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
        yield b"%08d" % i, serialize(image[np.newaxis], int(label))


def make_databases(folder: Path) -> None:
    """Write ``train_lmdb`` and ``test_lmdb`` of the shipped digits, and the definitions that use them."""
    shipped = resources.files("refcaffe") / "digits"
    with resources.as_file(shipped / "digits.npz") as path, np.load(path) as digits:
        images, labels = digits["images"], digits["labels"]
    parts = {"train_lmdb": slice(TRAIN_IMAGES), "test_lmdb": slice(TRAIN_IMAGES, None)}
    for name, part in parts.items():
        if not (folder / name).exists():
            write(str(folder / name), _records(images[part], labels[part]))
    for name in ("lenet.prototxt", "solver.prototxt"):
        (folder / name).write_text((shipped / name).read_text())


@contextmanager
def _log_to(path: Path) -> Iterator[None]:
    handler = logging.FileHandler(path, mode="w")
    handler.setFormatter(GlogFormatter())
    logger = logging.getLogger("refcaffe")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder: the definitions name their files relative to it, as Caffe's examples do."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def train(folder: Path, iterations: int | None = None) -> dict[str, float]:
    """Train the digits net in a folder made by ``make_databases``; returns the last test scores by name."""
    with _inside(folder), _log_to(Path("train.log")):
        with create("solver.prototxt") as solver:
            if iterations is not None:
                solver.param.max_iter = iterations
            with training_progress(solver):
                solver.solve()
        log = parse(Path("train.log").read_text().splitlines())
    return {name: curve[-1][1] for name, curve in log.scores.items()}


def _conformance() -> int:
    from conformance.cli import UsageError, default_fixtures
    from conformance.cli import main as conformance_main

    try:
        default_fixtures()
    except UsageError as error:
        print(f"5. conformance is left out: {error}")
        return 0
    print("5. the recordings of original Caffe:", flush=True)
    return int(conformance_main(["run", "--allow-unsupported", "-j", str(min(os.cpu_count() or 1, 8))]))


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="refcaffe demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("refcaffe-demo"), help="folder for everything made")
    parser.add_argument("--iterations", type=int, help="train for so many iterations (default: the solver file's)")
    parser.add_argument("--no-conformance", action="store_true", help="leave the conformance cases out")
    options = parser.parse_args(arguments)
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    print(f"1. databases and definitions: {folder}{os.sep}", flush=True)
    make_databases(folder)
    print(f"2. training (log: {folder / 'train.log'})", flush=True)
    started = time.monotonic()
    scores = train(folder, options.iterations)
    print(f"3. trained in {time.monotonic() - started:.1f} s: " + ", ".join(f"{k} {v:g}" for k, v in scores.items()))
    plot.draw({"digits": parse((folder / "train.log").read_text().splitlines())}, folder / "training.png")
    print(f"4. curves: {folder / 'training.png'}", flush=True)
    return 0 if options.no_conformance else _conformance()
