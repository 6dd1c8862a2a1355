"""The fields of a Datum, found in one go where they are as Caffe's tools write them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refcaffe.kernels.compiled import compiled

CHANNELS, HEIGHT, WIDTH, LABEL, ENCODED, START, SIZE = range(7)

_DATA, _SIZED, _VARINT, _ENCODED = 4, 2, 0, 7
_PLACES = np.array([-1, CHANNELS, HEIGHT, WIDTH, -1, LABEL, -1, ENCODED])  # of a field's value


@compiled  # and no NumPy form: a few bytes, each of which says what the next ones are
def find_fields(message: Any, found: Any) -> bool:
    """Write the values of a Datum's fields to ``found``: int64, zeros, as numbered above; START is where data begin.

    False if there is anything that is rare, float_data or damage among them: then ``found`` is of no use.
    """
    at = 0
    while at < len(message):
        number, kind = message[at] >> 3, message[at] & 7
        place = _PLACES[number] if number < len(_PLACES) else -1
        if not (kind == _SIZED and number == _DATA) and not (kind == _VARINT and place >= 0):
            return False
        at += 1
        value, shift = 0, 0
        while True:
            if at == len(message) or shift > 28:  # a larger number, or a negative one
                return False
            byte: Any = np.int64(message[at])
            value |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if byte < 0x80:
                break
        if value > 0x7FFFFFFF:
            return False
        if kind == _VARINT:
            found[place] = value
        elif value > len(message) - at:
            return False
        else:
            found[START], found[SIZE] = at, value
            at += value
    return True
