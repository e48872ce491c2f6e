"""Kafka's messages with anything in them, for tests that send them or read them back."""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from lossless.wire.codec import Fields
from lossless.wire.versions import APIS, Api

_TEXTS = st.one_of(
    st.sampled_from(["", "hostile", "__consumer_offsets", ".", "..", "a/b", "\0", "ü", "x" * 300]),
    st.text(st.characters(codec="utf-8"), max_size=8),
)


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    lowest, highest = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    edges = [n for n in (-2, -1, 0, 1, 2, 3, 100, lowest, highest) if lowest <= n <= highest]
    return st.sampled_from(edges) | st.integers(lowest, highest)


# As `codec.make` takes them: times in milliseconds, errors as numbers.
_KINDS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": _integers(8),
    "int16": _integers(16),
    "uint16": _integers(16, signed=False),
    "int32": _integers(32),
    "int64": _integers(64),
    "float64": st.floats(allow_nan=False),
    "string": _TEXTS,
    "bytes": st.binary(max_size=40),
    "records": st.binary(max_size=100),
    "uuid": st.one_of(st.just(uuid.UUID(int=1)), st.uuids(allow_nil=False)),
    "error_code": st.sampled_from([int(code.value) for code in ErrorCode]),
    "timedelta_i32": _integers(32),
    "timedelta_i64": st.integers(-(10**13), 10**13),
    "datetime_i64": st.integers(0, 10**13),
}


def every_version() -> Iterator[tuple[Api, int]]:
    for api in APIS.values():
        for version in range(api.lowest, api.highest + 1):
            yield api, version


def fields_of(entity: Any, *, elements_max: int = 2) -> st.SearchStrategy[Fields]:
    """Fields for `make`: any of those that a version has, or none."""
    hints = typing.get_type_hints(entity)
    optional = {
        field.name: _values(field, hints[field.name], elements_max)
        for field in dataclasses.fields(entity)
    }
    return st.fixed_dictionaries({}, optional=optional)


def all_fields_of(entity: Any, *, elements_max: int = 2) -> st.SearchStrategy[Fields]:
    """Fields for `make`: every one that a version has."""
    hints = typing.get_type_hints(entity)
    return st.fixed_dictionaries(
        {
            field.name: _values(field, hints[field.name], elements_max)
            for field in dataclasses.fields(entity)
        }
    )


def _values(field: Any, hint: Any, elements_max: int) -> st.SearchStrategy[Any]:
    may_be_none = False
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        may_be_none = type(None) in typing.get_args(hint)
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    is_many = typing.get_origin(hint) is tuple
    held = typing.get_args(hint)[0] if is_many else hint
    one: st.SearchStrategy[Any]
    if dataclasses.is_dataclass(held):
        one = all_fields_of(held, elements_max=elements_max)
    else:
        one = _KINDS[field.metadata["kafka_type"]]
    value = st.lists(one, max_size=elements_max) if is_many else one
    return st.none() | value if may_be_none else value


def plain(value: Any) -> Any:
    """A message, or a part of it, as `make` would take it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [plain(part) for part in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, ErrorCode):
        return int(value.value)
    return value
