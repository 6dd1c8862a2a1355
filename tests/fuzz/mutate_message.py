"""Damage to what a message says: it stays well-formed and reaches the code behind the parser."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as Field

from tests.fuzz.mutate import FLOATS, NUMBERS

_BITS = {Field.TYPE_INT32: (31, True), Field.TYPE_INT64: (63, True), Field.TYPE_UINT32: (32, False)}
_NAMES = ("", "data", "label", "x", "layer", "ip", "loss", "input", "(automatic)", "a" * 200, "ä", "a/b", "%s", "\0")


def parts(message: Any) -> Iterator[Any]:
    """A message and all that are in it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for inner in value if not field.has_presence else (value,):
                yield from parts(inner)


def _value(rng: Random, field: Any, like: Sequence[Any]) -> Any:
    """A random value for a field of numbers or words; ``like``: messages whose values it may borrow."""
    kind = field.type
    if kind in (Field.TYPE_FLOAT, Field.TYPE_DOUBLE):
        return rng.choice((*FLOATS, 0.5, rng.uniform(-2, 2), float(rng.randrange(5))))
    if kind == Field.TYPE_BOOL:
        return rng.random() < 0.5
    if kind == Field.TYPE_ENUM:
        return rng.choice(field.enum_type.values).number
    if kind in (Field.TYPE_STRING, Field.TYPE_BYTES):
        borrowed = [getattr(message, field.name) for message in like if message.DESCRIPTOR is field.containing_type]
        names = [value for value in borrowed if isinstance(value, str) and value]
        value = rng.choice(names or _NAMES) if rng.random() < 0.7 else rng.choice(_NAMES)
        return value if kind == Field.TYPE_STRING else value.encode()
    value = rng.choice(NUMBERS) if rng.random() < 0.4 else rng.randrange(-2, 9)
    bits, signed = _BITS.get(kind, (64, False))
    return max(-(2**bits) if signed else 0, min(value, 2**bits - 1))


def _give(rng: Random, message: Any, field: Any, bank: Sequence[Any], like: Sequence[Any]) -> None:
    """Set a field, or add to it."""
    if field.message_type is not None:
        alike = [other for other in bank if other.DESCRIPTOR is field.message_type]
        target = getattr(message, field.name)
        target = target.add() if not field.has_presence else target
        target.SetInParent()
        if alike and rng.random() < 0.7:
            target.CopyFrom(rng.choice(alike))
    elif field.has_presence:
        setattr(message, field.name, _value(rng, field, like))
    else:
        times = rng.choice((1, 1, 1, 2, 3, 33))
        getattr(message, field.name).extend([_value(rng, field, like)] * times)


def _rearrange(rng: Random, elements: Any) -> None:
    """Change the order or number of what is repeated."""
    kept = list(elements)
    if not kept:
        return
    change = rng.randrange(4)
    if change == 0:
        rng.shuffle(kept)
    elif change == 1:
        kept.pop(rng.randrange(len(kept)))
    elif change == 2:
        kept.insert(rng.randrange(len(kept) + 1), rng.choice(kept))
    else:
        kept = kept[: rng.randrange(len(kept) + 1)]
    copies = [_copy(element) for element in kept]
    del elements[:]
    elements.extend(copies)


def _copy(element: Any) -> Any:
    if not hasattr(element, "CopyFrom"):
        return element
    copy = type(element)()
    copy.CopyFrom(element)
    return copy


def damage_message(rng: Random, message: Any, bank: Sequence[Any]) -> None:
    """A few mutations, in place. ``bank``: messages of any type that may be put in."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 5))):
        inside = list(parts(message))
        like = inside if rng.random() < 0.5 else bank
        target = rng.choice(inside)
        given = [field for field, _ in target.ListFields()]
        field = rng.choice(given) if given and rng.random() < 0.75 else rng.choice(target.DESCRIPTOR.fields)
        change = rng.random()
        if change < 0.15:
            target.ClearField(field.name)
        elif change < 0.4 and not field.has_presence:
            _rearrange(rng, getattr(target, field.name))
        elif not field.has_presence and field.message_type is None and len(getattr(target, field.name)):
            values = getattr(target, field.name)
            values[rng.randrange(len(values))] = _value(rng, field, like)
        else:
            _give(rng, target, field, bank, like)
