"""What the tests of this folder share."""

import gc
import threading

import pytest
from data_room_running import records

from refcaffe import context, data
from refcaffe.data import leveldb_read, lmdb_read, reader


@pytest.fixture(autouse=True)
def nothing_left():
    """No thread and no open database may survive a test."""
    context.current().set_random_seed(1)
    yield
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.startswith(("prefetch", "reader")):  # on its way out, if it has collected its layer itself
            thread.join(1)
            assert not thread.is_alive()
    assert lmdb_read._environments == {}
    assert leveldb_read._open == set()
    assert reader.bodies() == 0


@pytest.fixture
def db(tmp_path):
    path = str(tmp_path / "db")
    data.write(path, records(5))
    return path
