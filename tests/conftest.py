"""What holds for all tests."""

from hypothesis import settings

# Examples are drawn anew from a fixed seed, and none fails for being slow on a busy machine.
settings.register_profile("refcaffe", deadline=None, derandomize=True)
settings.load_profile("refcaffe")
