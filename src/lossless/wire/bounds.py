"""Whether a request can be what it says, before memory is set aside for it.

kio believes a count: a request of a few bytes that announces two billion topics makes it ask the
system for 32 GB at once, and the process is gone. So every request is walked over first, without
making anything of it: lengths stay within the message, counts within reason, and tagged fields that
nobody here knows are cut out, because Kafka ignores them (KIP-482) and kio refuses them.

Rules learnt
- Everything that an array may hold takes at least a byte. Who walks to the end has seen that the
  counts are true.
- Elements cost a hundred times what their bytes do, and a broker has one thread: a message has at
  most `ELEMENTS_MAX` of them. Kafka has no such limit.
- Tagged fields may be empty, so that two bytes make one. One set of them has at most `TAGS_MAX`,
  and those of all sets count as elements. Kafka defines no more than four for any message.
- A text of the compact kind is as long as one of the old kind at most, as in Kafka.
- kio takes an array that is missing where none may be; a handler would stumble over it.
"""

from __future__ import annotations

import dataclasses
import functools
import struct
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lossless.wire.encoding import varint

ELEMENTS_MAX = 20_000
TAGS_MAX = 32
TEXT_BYTES_MAX = 0x7FFF

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_SIZES = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "error_code": 2,
    "int32": 4,
    "uint32": 4,
    "timedelta_i32": 4,
    "int64": 8,
    "timedelta_i64": 8,
    "datetime_i64": 8,
    "float64": 8,
    "uuid": 16,
}


class BadMessage(ValueError):
    """Bytes that are not the message that they should be."""


class _Edit(NamedTuple):
    start: int
    end: int
    instead: bytes


class _Walk:
    """What was seen of one message."""

    __slots__ = ("edits", "elements")

    def __init__(self, elements: int = 0) -> None:
        self.elements = elements
        self.edits: list[_Edit] = []

    def count(self, elements: int) -> None:
        self.elements += elements
        if self.elements > ELEMENTS_MAX:
            raise BadMessage(f"more than {ELEMENTS_MAX} elements")


Step = Callable[[bytes, int, _Walk], int]  # from where something begins to where it ends


def within_bounds(entity: Any, data: bytes, position: int) -> tuple[bytes, int]:
    """The same message, or what is left of it without fields that nobody knows."""
    walk = _Walk()
    try:
        end = _step_of(entity)(data, position, walk)
    except (IndexError, struct.error):
        raise BadMessage(f"{entity.__name__} is cut off") from None
    if end > len(data):
        raise BadMessage(f"{entity.__name__} is cut off")
    if walk.edits:
        return _edited(data, position, len(data), walk.edits), 0
    return data, position


def _edited(data: bytes, start: int, end: int, edits: Sequence[_Edit]) -> bytes:
    parts: list[bytes] = []
    for edit in edits:
        parts += (data[start : edit.start], edit.instead)
        start = edit.end
    return b"".join((*parts, data[start:end]))


# Steps. What is always of the same size is no step: the next one begins behind it.


@functools.cache
def _step_of(entity: Any) -> Step:
    """Over a whole message, or one within another."""
    steps: list[Step] = []
    skipped = 0
    for field, hint in _fields(entity):
        if "tag" in field.metadata:
            continue
        size = _field_size(field, hint)
        if size is not None:
            skipped += size
        else:
            steps.append(_field_step(field, hint, entity.__flexible__, skipped))
            skipped = 0
    if not entity.__flexible__:
        return _over(steps, skipped)
    tagged = {
        field.metadata["tag"]: _fixed(size)
        if (size := _field_size(field, hint)) is not None
        else _field_step(field, hint, True, 0, is_tagged=True)
        for field, hint in _fields(entity)
        if "tag" in field.metadata
    }
    return _over_flexible(steps, skipped, _tags(tagged))


def _over(steps: Sequence[Step], skipped: int) -> Step:
    def step(data: bytes, at: int, walk: _Walk) -> int:
        for one in steps:
            at = one(data, at, walk)
        return at + skipped

    return step


def _over_flexible(steps: Sequence[Step], skipped: int, tags: Step) -> Step:
    def step(data: bytes, at: int, walk: _Walk) -> int:
        for one in steps:
            at = one(data, at, walk)
        at += skipped
        return tags(data, at, walk) if data[at] else at + 1

    return step


@functools.cache
def _size_of(entity: Any) -> int | None:
    """How many bytes a message has, if it is always the same."""
    sizes = [_field_size(*field) for field in _fields(entity)]
    if entity.__flexible__ or None in sizes:
        return None
    return sum(size for size in sizes if size is not None)


@functools.cache
def _fields(entity: Any) -> tuple[tuple[Any, Any], ...]:
    hints = typing.get_type_hints(entity)
    return tuple((field, hints[field.name]) for field in dataclasses.fields(entity))


def _parts(hint: Any) -> tuple[Any, bool, bool]:
    """What a field holds, whether it holds several, and whether it may hold nothing."""
    may_be_none = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        may_be_none = type(None) in typing.get_args(hint)
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    is_many = typing.get_origin(hint) is tuple
    held: Any = typing.get_args(hint)[0] if is_many else hint
    return held, is_many, may_be_none


def _field_size(field: Any, hint: Any) -> int | None:
    held, is_many, may_be_none = _parts(hint)
    if is_many:
        return None
    is_message = dataclasses.is_dataclass(held)
    if is_message:
        return None if may_be_none else _size_of(held)
    return _SIZES.get(field.metadata["kafka_type"])


def _field_step(
    field: Any, hint: Any, flexible: bool, skipped: int, *, is_tagged: bool = False
) -> Step:
    held, is_many, may_be_none = _parts(hint)
    kind = field.metadata.get("kafka_type")
    is_message = dataclasses.is_dataclass(held)
    if is_many:
        size = _size_of(held) if is_message else _SIZES.get(kind)
        if size is not None:
            return _array_of_fixed(size, flexible, skipped, -1 if may_be_none else 0)
        element = _step_of(held) if is_message else _text_or_bytes(kind, flexible, 0)
        return _array(element, flexible, skipped, -1 if may_be_none else 0)
    if is_message:
        return _message(_step_of(held), skipped, may_be_none=may_be_none and not is_tagged)
    return _text_or_bytes(kind, flexible, skipped)


def _text_or_bytes(kind: str, flexible: bool, skipped: int) -> Step:
    if flexible:
        return _compact_text(skipped) if kind == "string" else _compact_bytes(skipped)
    return _sized(_INT16 if kind == "string" else _INT32, skipped)


def _fixed(size: int) -> Step:
    return lambda _data, at, _walk: at + size


def _message(inner: Step, skipped: int, *, may_be_none: bool) -> Step:
    def message(data: bytes, at: int, walk: _Walk) -> int:
        at += skipped
        if may_be_none:
            at += 1
            if data[at - 1] > 0x7F:  # below zero: there is none
                return at
        return inner(data, at, walk)

    return message


def _sized(length: struct.Struct, skipped: int) -> Step:
    """A text or bytes of the old kind."""

    def sized(data: bytes, at: int, _walk: _Walk) -> int:
        at += skipped
        (size,) = length.unpack_from(data, at)
        return at + length.size + (size if size > 0 else 0)

    return sized


def _compact_text(skipped: int) -> Step:
    def text(data: bytes, at: int, _walk: _Walk) -> int:
        at += skipped
        size = data[at]
        if size < 0x80:
            return at + size if size else at + 1
        size, at = _number(data, at)
        if size - 1 > TEXT_BYTES_MAX:
            raise BadMessage(f"a text of {size - 1} bytes")
        return at + size - 1

    return text


def _compact_bytes(skipped: int) -> Step:
    def compact(data: bytes, at: int, _walk: _Walk) -> int:
        size, at = _number(data, at + skipped)
        return at + (size - 1 if size else 0)

    return compact


def _array(element: Step, flexible: bool, skipped: int, least: int) -> Step:
    def array(data: bytes, at: int, walk: _Walk) -> int:
        count, at = _count(data, at + skipped, flexible)
        if count < least:
            raise BadMessage(f"an array of {count} elements")
        if count > 0:
            walk.count(count)
            for _ in range(count):
                at = element(data, at, walk)
        return at

    return array


def _array_of_fixed(size: int, flexible: bool, skipped: int, least: int) -> Step:
    def array(data: bytes, at: int, walk: _Walk) -> int:
        count, at = _count(data, at + skipped, flexible)
        if count < least:
            raise BadMessage(f"an array of {count} elements")
        if count > 0:
            walk.count(count)
            at += count * size
            if at > len(data):
                raise BadMessage("an array is cut off")
        return at

    return array


def _count(data: bytes, at: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, at = _number(data, at)
        return count - 1, at
    return _INT32.unpack_from(data, at)[0], at + 4


def _tags(known: Mapping[int, Step]) -> Step:
    def tags(data: bytes, at: int, walk: _Walk) -> int:
        start = at
        count, at = _number(data, at)
        if count > TAGS_MAX:
            raise BadMessage(f"{count} tagged fields")
        walk.count(count)
        kept = []
        is_changed = False
        for _ in range(count):
            tag_at = at
            tag, at = _number(data, at)
            size, at = _number(data, at)
            end = at + size
            if end > len(data):
                raise BadMessage(f"tagged field {tag} is cut off")
            step = known.get(tag)
            if step is None:
                is_changed = True
            else:
                inner = _Walk(walk.elements)
                if step(data, at, inner) != end:
                    raise BadMessage(f"tagged field {tag} does not end where it says")
                walk.elements = inner.elements
                content = _edited(data, at, end, inner.edits)
                is_changed = is_changed or bool(inner.edits)
                kept.append(
                    varint(tag) + varint(len(content)) + content
                    if inner.edits
                    else data[tag_at:end]
                )
            at = end
        if is_changed:
            walk.edits.append(_Edit(start, at, varint(len(kept)) + b"".join(kept)))
        return at

    return tags


def _number(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    value, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise BadMessage("a number does not end")
