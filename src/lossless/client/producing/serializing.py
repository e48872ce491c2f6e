"""From what the application gives to bytes: a serializer's work, or text and bytes as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka.serialization import MessageField, SerializationContext

from lossless.client.errors import SerializationFailed, described
from lossless.client.record import HeadersGiven, Record, headers_of

# confluent-kafka's, Schema Registry's among them: serializer(what, context) -> bytes
Serializer = Callable[[Any, SerializationContext], bytes | None]


def serialized(
    serializer: Serializer | None,
    what: object,
    topic: str,
    field: MessageField,
    headers: HeadersGiven,
) -> bytes | None:
    """A serializer may add headers: it gets a list, those of which are sent."""
    if serializer is None:
        return as_bytes(what, topic, field)
    try:
        # confluent-kafka's stub says that a context takes no headers of this type; it takes any.
        context = SerializationContext(topic, field, headers)  # type: ignore[arg-type]
        made: object = serializer(what, context)
    except Exception as error:
        raise SerializationFailed(
            f"{topic}: the {field} could not be serialised: {described(error)}",
            record=Record(topic=topic, headers=headers_of(headers)),
        ) from error
    if made is None or isinstance(made, bytes):
        return made
    return as_bytes(made, topic, field)


def as_bytes(what: object, topic: str, field: str) -> bytes | None:
    if what is None or isinstance(what, bytes):
        return what
    if isinstance(what, str):
        try:
            return what.encode()
        except UnicodeEncodeError as error:
            raise SerializationFailed(
                f"{topic}: the {field} is no text that UTF-8 has: {error}",
                record=Record(topic=topic),
            ) from error
    if isinstance(what, bytearray | memoryview):
        return bytes(what)
    raise SerializationFailed(
        f"{topic}: the {field} is of type {type(what).__name__}, and nobody said how to write that",
        hint=f"give text or bytes, or a serializer: Producer(…, serialize_{field}=…)",
        record=Record(topic=topic),
    )
