"""``refcaffe trace``: what a pass of a net moves between host and device."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from refcaffe import context, device
from refcaffe.checks import CheckError
from refcaffe.cli.trace_svg import drawing
from refcaffe.context import Mode
from refcaffe.net import Net
from refcaffe.net.trace import Step, Tracer
from refcaffe.proto import caffe_pb2
from refcaffe.watch import Copy, Turn

_EPILOG = """\
heads: where the newest bytes of a blob's data or diff are: U nowhere yet, C on the host, G on the device, S on both.
copies: H2D host to device, D2H back, D2D and H2H within a side; "internal" is memory of a layer's own.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="refcaffe trace",
        description="Run a pass of a net in GPU mode and show every head transition and copy, layer by layer.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, metavar="FILE", help="the net's definition (text)")
    parser.add_argument("--weights", metavar="FILE", help="a model file with its parameters")
    parser.add_argument("--phase", choices=("TRAIN", "TEST"), default="TRAIN", help="(default: %(default)s)")
    parser.add_argument(
        "--device",
        choices=("fake", "cuda"),
        default="fake",
        help="fake: in host memory, on any machine (default: %(default)s)",
    )
    parser.add_argument(
        "--pass",
        dest="number",
        type=int,
        default=1,
        metavar="N",
        help="show the N-th pass; the first one uploads what stays on the device (default: %(default)s)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="also draw a time line as SVG")
    return parser


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit status. Raises CheckError for a net that fails, OSError for files."""
    options = build_parser().parse_args(arguments)
    if options.number < 1:
        raise CheckError(f"--pass: there is no pass {options.number}; the first is 1")
    for path in filter(None, (options.model, options.weights)):
        Path(path).open("rb").close()
    here = context.current()
    before = here.mode
    with device.use(options.device) as runtime:
        here.mode = Mode.GPU
        try:
            phase = caffe_pb2.Phase.Value(options.phase)
            with Net(options.model, phase, weights=options.weights) as net:
                tracer = Tracer(net, runtime)
                for _ in range(options.number):
                    steps = tracer.run()
                title = f"{net.name or options.model}, {options.phase}, pass {options.number}, device {runtime.name}"
        finally:
            here.mode = before
    print(title)
    print("\n".join(lines(steps)))
    if options.output:
        options.output.write_text(drawing(title, steps), encoding="utf-8")
    return 0


def lines(steps: Iterable[Step]) -> list[str]:
    """The steps as text: for each layer its copies and the heads that moved, then all copies together."""
    found = []
    steps = list(steps)
    for step in steps:
        found.append(f"{step.what} {step.layer} ({step.kind})" if step.layer else step.what)
        found += [f"    {event_text(event)}" for event in step.events]
    return [*found, "", *totals(copy for step in steps for copy in step.copies)]


def event_text(event: Copy | Turn) -> str:
    """A copy, or a head that moved, on one line."""
    if isinstance(event, Turn):
        return f"{event.before} -> {event.after}                {event.what}"
    marks = ", prefetch thread" * event.prefetch + ", asynchronous" * event.asynchronous
    return f"{event.direction} {event.nbytes:>10,} bytes  {' -> '.join(event.ends)}{marks}"


def totals(copies: Iterable[Copy]) -> list[str]:
    """How many copies and bytes there are of each direction."""
    count: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for copy in copies:
        count[copy.direction] += 1
        nbytes[copy.direction] += copy.nbytes
    return [f"{way} {count[way]:>4} copies {nbytes[way]:>12,} bytes" for way in sorted(count)] or ["no copies"]
