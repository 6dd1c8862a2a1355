"""``python -m refcaffe``: the same as the ``refcaffe`` command."""

import sys

from refcaffe.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
