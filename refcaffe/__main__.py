"""``python -m refcaffe script.py ...`` and ``python -m refcaffe -m module ...`` run a Python program whose ``caffe``

is refcaffe; with anything else ``python -m refcaffe`` is the ``refcaffe`` command.
"""

import os
import runpy
import sys

from refcaffe.alias import install_as_caffe


def main() -> None:
    """Run the program, or be the command."""
    arguments = sys.argv[1:]
    first = arguments[0] if arguments else ""
    if first.endswith(".py") and os.path.isfile(first):
        install_as_caffe()
        sys.argv = arguments
        if not getattr(sys.flags, "safe_path", False):
            sys.path[0] = os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")
    elif first == "-m" and len(arguments) > 1:
        install_as_caffe()
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        from refcaffe.cli.main import program

        program()


if __name__ == "__main__":
    main()
