"""What holds for all tests."""

import gc
import signal

from hypothesis import settings

# Examples are drawn anew from a fixed seed, and none fails for being slow on a busy machine.
settings.register_profile("refcaffe", deadline=None, derandomize=True)
settings.load_profile("refcaffe")

# A shell starts what runs in the background with SIGINT ignored, and Python leaves it so; the tests of Ctrl-C need it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What is there for good, thousands of tests among it, is not looked through at every ``gc.collect()``."""
    gc.collect()
    gc.freeze()
