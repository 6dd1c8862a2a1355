"""What feeds a net: databases, records, image decoding, preprocessing and prefetching.

``for key, value in data.read("some_lmdb"): datum = data.parse(value)`` reads a database;
``data.write("new_lmdb", ((key, data.serialize(pixels, label)) for ...))`` makes one.
"""

from refcaffe.data.datum import Datum, parse, serialize
from refcaffe.data.db import create, open_cursor, read, write

__all__ = ["Datum", "create", "open_cursor", "parse", "read", "serialize", "write"]
