"""``refcaffe compare A B``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from conformance.dumps.reading import Dump, DumpError
from conformance.dumps.show import as_json, draw, print_table
from conformance.dumps.walk import MISSING, UNKNOWN, compare

_DESCRIPTION = """\
Compare two runs of a net, blob by blob, and show the first layer where they part.

A and B are folders written by `refcaffe dump` or by its script in another Caffe, or what another engine left: a folder
of BLOB.npy files, or a .npz file with an array for each blob. One of the two must have an index.json.
"""
_EPILOG = "exit status: 0 equal within bounds; 1 the runs part; 2 wrong usage, or a file that cannot be read."


def main(arguments: Sequence[str], prog: str = "refcaffe compare") -> int:
    """The command; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog=prog, description=_DESCRIPTION, epilog=_EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", type=Path, metavar="A", help="the run to compare with")
    parser.add_argument("b", type=Path, metavar="B", help="the run that is compared")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw errors and bounds: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    parser.add_argument("--all", action="store_true", help="show arrays that are equal bit for bit, too")
    parser.add_argument("--strict", action="store_true", help="fail also for arrays that are missing or have no bound")
    options = parser.parse_args(arguments)
    try:
        a, b = Dump(options.a), Dump(options.b)
        swapped = a.definition() is None
        if swapped and b.definition() is None:
            raise DumpError("neither run has an index.json with the net's definition, which says what to expect")
        comparison = compare(b, a) if swapped else compare(a, b)
        if options.plot:
            draw(comparison, options.plot)
    except (DumpError, OSError, RuntimeError) as error:
        print(f"{prog}: {error}", file=sys.stderr)
        return 2
    first, second = (b, a) if swapped else (a, b)
    if options.json:
        print(json.dumps(as_json(first, second, comparison), indent=1, allow_nan=False))
    else:
        console = Console()
        if not console.is_terminal:
            console.width = 150  # rich takes 80 where there is no terminal, too few for the table
        console.print(f"A: {first.path} ({first.engine})\nB: {second.path} ({second.engine})", highlight=False)
        print_table(console, comparison, options.all)
    unsure = options.strict and bool(comparison.count(MISSING) + comparison.count(UNKNOWN))
    return int(comparison.first is not None or unsure)
