"""What feeds a net: databases, records, image decoding, preprocessing and prefetching.

``for key, value in data.read("some_lmdb"): datum = data.parse(value)`` reads a database;
``data.write("new_lmdb", ((key, data.serialize(pixels, label)) for ...))`` makes one.
"""

from refcaffe.data.datum import Datum, parse, serialize
from refcaffe.data.db import create, open_cursor, read, write
from refcaffe.data.queue import BlockingQueue
from refcaffe.data.reader import DataReader
from refcaffe.data.workers import num_workers, set_num_workers

__all__ = [
    "BlockingQueue", "DataReader", "Datum", "create", "num_workers", "open_cursor", "parse", "read", "serialize",
    "set_num_workers", "write",
]  # fmt: skip
