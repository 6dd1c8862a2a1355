"""``python -m conformance``."""

from conformance.cli import main
from refcaffe.cli import process

if __name__ == "__main__":
    process.run(main)
