"""Kafka's messages as kio has them: one class for each version of each message.

A handler should not have to know which version it answers. It reads what a request has, and answers
with fields by name, as nested dictionaries; `Answer` makes of them what the version has, leaves out
what it does not have, and fills in what nobody said. A name that no version has is a mistake in the
handler, and is refused.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from kio.index import load_payload_module, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from lossless.wire import envelope
from lossless.wire.bounds import BadMessage, within_bounds

Fields = Mapping[str, Any]
ERROR_MESSAGE_MAX = 1000  # characters

_NO_TIME = datetime.datetime.fromtimestamp(0, datetime.UTC)
_ZEROES: dict[str, Any] = {
    "string": "",
    "bytes": b"",
    "records": None,
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": datetime.timedelta(),
    "timedelta_i64": datetime.timedelta(),
    "datetime_i64": _NO_TIME,
    "uuid": None,
    "float64": 0.0,
}


class UnknownField(TypeError):
    """A handler answers with a field that no version of the message has."""


@functools.cache
def request_class(key: int, version: int) -> Any:
    return load_request_schema(key, version)


@functools.cache
def response_class(key: int, version: int) -> Any:
    return envelope.ForwardedResponse if key == envelope.KEY else load_response_schema(key, version)


@functools.cache
def reader(entity: Any) -> Callable[[Any, int], tuple[Any, int]]:
    return entity_reader(entity)


def read(entity: Any, data: bytes, position: int) -> Any:
    """The message at `position`. What follows it is ignored, as Kafka does: librdkafka leaves three
    bytes behind its request for the metadata of all topics. BadMessage if there is none."""
    try:
        if entity.__type__ is EntityType.request:  # of an answer another node of ours is the author
            data, position = within_bounds(entity, data, position)
        message, _size = reader(entity)(data, position)
    except BadMessage:
        raise
    except Exception as error:  # kio has no common class for what is wrong with bytes
        raise BadMessage(f"no {entity.__name__}: {error}") from error
    return message


def milliseconds(time: datetime.timedelta) -> int:
    return time // datetime.timedelta(milliseconds=1)


@functools.cache
def _writer(entity: Any) -> Callable[[Any, Any], None]:
    return entity_writer(entity)


def write(message: Any) -> bytes:
    target = io.BytesIO()
    entity: Any = type(message)
    _writer(entity)(target, message)
    return target.getvalue()


def make(entity: Any, fields: Fields) -> Any:
    """The message of one version, from fields by name."""
    return _builder(entity)(fields)


@functools.cache
def _builder(entity: Any) -> Callable[[Fields], Any]:
    hints = typing.get_type_hints(entity)
    parts: list[tuple[str, Callable[[Any], Any], Any]] = []
    for field in dataclasses.fields(entity):
        convert = _conversion(field, hints[field.name])
        default = field.default if field.default is not dataclasses.MISSING else _zero(field, hints)
        parts.append((field.name, convert, default))

    own = frozenset(hints)

    def build(fields: Fields) -> Any:
        for name in fields.keys() - own:
            if not _is_known(entity.__api_key__, entity.__name__, name):
                raise UnknownField(f"{entity.__name__} has no {name}")
        return entity(
            **{
                name: convert(fields[name]) if name in fields else default
                for name, convert, default in parts
            }
        )

    return build


def _conversion(field: Any, hint: Any) -> Callable[[Any], Any]:
    nested, is_many = _nested(hint)
    if nested is not None:
        if is_many:
            return lambda values: None if values is None else tuple(map(_builder(nested), values))
        return lambda value: None if value is None else _builder(nested)(value)
    match field.metadata.get("kafka_type"):
        case "timedelta_i32" | "timedelta_i64":
            return lambda ms: datetime.timedelta(milliseconds=ms)
        case "datetime_i64":
            return lambda ms: (
                None if ms is None else datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)
            )
        case "error_code":
            return lambda code: ErrorCode(int(code))
        case "string" if field.name.endswith("error_message") and not is_many:
            # It may quote a name of the request, and then be longer than a text may be.
            return lambda text: None if text is None else text[:ERROR_MESSAGE_MAX]
        case _ if is_many:
            return lambda values: None if values is None else tuple(values)
        case _:
            return lambda value: value


def _nested(hint: Any) -> tuple[Any, bool]:
    """The message within, if the field is one or several; and whether it is several."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    is_many = typing.get_origin(hint) is tuple
    if is_many:
        hint = typing.get_args(hint)[0]
    return (hint if dataclasses.is_dataclass(hint) else None), is_many


def _zero(field: Any, hints: Mapping[str, Any]) -> Any:
    hint = hints[field.name]
    nested, is_many = _nested(hint)
    if is_many:
        return ()
    if nested is not None:
        return _builder(nested)({})
    kind = field.metadata.get("kafka_type", "int32")
    if kind == "string" and type(None) in typing.get_args(hint):
        return None
    return _ZEROES.get(kind, 0)


@functools.cache
def _is_known(key: int, message: str, field: str) -> bool:
    """Whether any version has it; most often the newest does, and loading one takes its time."""
    for version in sorted(schema_name_map[api_key_map[key]], reverse=True):
        for entity_type in (EntityType.request, EntityType.response):
            module = load_payload_module(key, version, entity_type)
            entity = getattr(module, message, None)
            if entity is not None and field in {one.name for one in dataclasses.fields(entity)}:
                return True
    return False
