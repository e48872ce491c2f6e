"""Requests made by chance that a broker understands: any API, any version, anything in any field.

Names, ids and numbers come mostly from what there is in the cluster, so that a request reaches what
it names; some come from nowhere. Now and then an array has as many elements as a request may have,
and some bytes of the frame are changed.
"""

from __future__ import annotations

import dataclasses
import functools
import random
import struct
import types
import typing
import uuid
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from victim import framed

from kafka_messages import every_version
from lossless.log.batch import Record, build
from lossless.log.compression import Compression
from lossless.wire.bounds import ELEMENTS_MAX
from lossless.wire.codec import Fields, request_class
from lossless.wire.versions import BROKER

KEPT_TEXTS_MAX = 200
NUMBERS = (-2, -1, 0, 1, 2, 3, 5, 100, 10_000)
UNREGISTER_BROKER = 64  # an order to a healthy broker to leave: it does
_BITS = {"int8": 8, "int16": 16, "uint16": 17, "int32": 32, "uint32": 33, "int64": 64}
_BITS |= {"timedelta_i32": 32, "timedelta_i64": 56, "datetime_i64": 43, "error_code": 16}


class Request(NamedTuple):
    key: int
    version: int
    frame: bytes
    is_mutated: bool


class RandomRequests:
    def __init__(self, chance: random.Random, topics: Sequence[str]) -> None:
        self._chance = chance
        self._versions = [
            (api.key, version)
            for api, version in every_version()
            if api.listeners & BROKER and api.key != UNREGISTER_BROKER
        ]
        self._texts = [*topics, "group", "transaction", "consumer", "range", "1", ""]
        self._ids = [uuid.UUID(int=0), uuid.UUID(int=77)]

    def learn(self, answer: Any) -> None:
        """Names and ids that the cluster has given: of members, topics, sessions."""
        if isinstance(answer, str):
            if 0 < len(answer) < 100 and answer not in self._texts:
                self._texts.append(answer)
                if len(self._texts) > KEPT_TEXTS_MAX:
                    del self._texts[KEPT_TEXTS_MAX // 2]
        elif isinstance(answer, uuid.UUID):
            if answer not in self._ids:
                self._ids = [*self._ids[-50:], answer]
        elif isinstance(answer, tuple):
            for one in answer[:20]:
                self.learn(one)
        elif dataclasses.is_dataclass(answer):
            for field in dataclasses.fields(answer):
                self.learn(getattr(answer, field.name))

    def next(self) -> Request:
        chance = self._chance
        key, version = chance.choice(self._versions)
        frame = self.of(key, version, is_large=chance.random() < 0.01)
        is_mutated = chance.random() < 0.3
        return Request(key, version, self._mutated(frame) if is_mutated else frame, is_mutated)

    def of(self, key: int, version: int, *, is_large: bool) -> bytes:
        entity = request_class(key, version)
        large = self._chance.choice(_arrays(entity)) if is_large and _arrays(entity) else None
        return framed(key, version, self._fields(entity, (), large))

    # Fields

    def _fields(self, entity: Any, path: tuple[str, ...], large: tuple[str, ...] | None) -> Fields:
        return {
            field.name: self._value(field, hint, (*path, field.name), large)
            for field, hint in _typed_fields(entity)
        }

    def _value(
        self, field: Any, hint: Any, path: tuple[str, ...], large: tuple[str, ...] | None
    ) -> Any:
        held, is_many, may_be_none = _parts(hint)
        is_on_the_way = large is not None and large[: len(path)] == path
        if may_be_none and not is_on_the_way and self._chance.random() < 0.1:
            return None
        one: Callable[[], Any]
        if dataclasses.is_dataclass(held):
            one = lambda: self._fields(held, path, large)  # noqa: E731
        else:
            one = self._kinds(field.metadata["kafka_type"])
        if not is_many:
            return one()
        if large == path:
            few = [one() for _ in range(self._chance.choice([1, 50]))]
            count = self._chance.choice([1000, ELEMENTS_MAX - 50, ELEMENTS_MAX // 4 - 50])
            return [few[number % len(few)] for number in range(count)]
        return [one() for _ in range(1 if is_on_the_way else self._chance.choice([0, 1, 1, 2]))]

    def _kinds(self, kind: str) -> Callable[[], Any]:
        chance = self._chance
        match kind:
            case "string":
                return self._text
            case "bytes" | "records":
                return self._bytes
            case "bool":
                return lambda: chance.random() < 0.5
            case "uuid":
                return lambda: chance.choice(self._ids)
            case "float64":
                return lambda: chance.choice([0.0, -1.0, 1e300])
            case "error_code":
                return lambda: chance.choice([0, 1, 3])
            case _:
                return lambda: self._number(_BITS[kind] - 1)

    def _number(self, bits: int) -> int:
        chance = self._chance
        if chance.random() < 0.7:
            found = chance.choice(NUMBERS)
        else:
            found = chance.choice([(1 << bits) - 1, -(1 << bits), chance.randrange(1 << bits)])
        return max(-(1 << bits), min(found, (1 << bits) - 1))

    def _text(self) -> str:
        chance = self._chance
        match chance.randrange(20):
            case 0:
                return "x" * chance.choice([249, 250, 0x7FFF])
            case 1:
                return chance.choice(
                    ["../..", "a b", "\u00fc" * 20, "(a+)+$", "\0", "__consumer_offsets"]
                )
            case _:
                return chance.choice(self._texts)

    def _bytes(self) -> bytes:
        chance = self._chance
        if chance.random() < 0.2:
            return chance.randbytes(chance.choice([0, 1, 30, 10_000]))
        batch = bytearray(chance.choice(_batches()))
        if chance.random() < 0.5:
            batch[chance.randrange(len(batch))] = chance.randrange(256)
        return bytes(batch)

    # Bytes

    def _mutated(self, frame: bytes) -> bytes:
        """The same request with some of its message's bytes changed, cut out, or put in."""
        chance = self._chance
        changed = bytearray(frame[4:])
        for _ in range(chance.randint(1, 3)):
            at = chance.randint(min(16, len(changed)), len(changed))
            match chance.randrange(3):
                case 0:
                    changed[at : at + 1] = chance.choice([b"\0", b"\1", b"\x7f", b"\x80", b"\xff"])
                case 1:
                    del changed[at : at + chance.randint(1, 6)]
                case _:
                    changed[at:at] = chance.choice([chance.randbytes(4), b"\xff" * 5, bytes(1000)])
        return struct.pack(">i", len(changed)) + bytes(changed)


@functools.cache
def _batches() -> list[bytes]:
    return [
        bytes(
            build(
                [Record(n, 1_700_000_000_000 + n, key, bytes(size)) for n in range(count)],
                compression=compression,
            ).data
        )
        for key in (None, b"k")
        for size in (0, 10, 70)
        for count in (1, 5, 3000)
        for compression in Compression
    ]


@functools.cache
def _typed_fields(entity: Any) -> list[tuple[Any, Any]]:
    hints = typing.get_type_hints(entity)
    return [(field, hints[field.name]) for field in dataclasses.fields(entity)]


def _parts(hint: Any) -> tuple[Any, bool, bool]:
    """What a field holds, whether it holds several, and whether it may hold nothing."""
    may_be_none = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        may_be_none = type(None) in typing.get_args(hint)
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    is_many = typing.get_origin(hint) is tuple
    return (typing.get_args(hint)[0] if is_many else hint), is_many, may_be_none


@functools.cache
def _arrays(entity: Any, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Where a message has arrays, within other arrays too."""
    found = []
    for field, hint in _typed_fields(entity):
        held, is_many, _ = _parts(hint)
        here = (*path, field.name)
        if is_many:
            found.append(here)
        if dataclasses.is_dataclass(held):
            found += _arrays(held, here)
    return found
