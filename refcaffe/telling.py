"""Errors that say where in the work they happened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from refcaffe.checks import CheckError


@contextmanager
def telling(place: Callable[[], str | bytes]) -> Iterator[None]:
    """Add ``place()`` to a CheckError of the block. Memory that is not there is one, too, as it is in upstream.

    Names that are not UTF-8 come out of messages as bytes.
    """
    try:
        yield
    except CheckError as error:
        error.within(os.fsdecode(place()))
        raise
    except MemoryError as error:
        nbytes = getattr(error, "nbytes", None)  # of a refusal by ``device.room``
        size = "" if nbytes is None else f" of size {nbytes}"
        text = f"Check failed: *ptr host allocation{size} failed"
        raise CheckError(text, "syncedmem.hpp").within(str(error)).within(os.fsdecode(place())) from error
