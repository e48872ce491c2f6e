"""From bytes to what the application works with, before a record is handed out.

The application gets a copy of the message with the results. The record itself stays as it was read,
so that it can be tried again, and sent on to a retry topic or the dead letters, byte for byte.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message
from confluent_kafka.serialization import MessageField, SerializationContext

from lossless.client.consuming.interfaces import offset_of, place_of, shown
from lossless.client.errors import DeserializationFailed

# confluent-kafka's, Schema Registry's among them: deserializer(bytes, context) -> anything
Deserializer = Callable[[bytes | None, SerializationContext], Any]


@dataclass(frozen=True, slots=True)
class Deserializing:
    """Can be pickled if its functions can, for handlers in other processes."""

    key: Deserializer | None
    value: Deserializer | None

    def __call__(self, message: Message) -> Message:
        """Raises DeserializationFailed."""
        topic, partition = place_of(message)
        return Message(
            topic=topic,
            partition=partition,
            offset=offset_of(message),
            key=self._deserialized(self.key, message.key(), message, MessageField.KEY),
            value=self._deserialized(self.value, message.value(), message, MessageField.VALUE),
            headers=message.headers() or [],
            timestamp=message.timestamp(),
            leader_epoch=message.leader_epoch(),
        )

    def _deserialized(
        self, deserializer: Deserializer | None, data: Any, message: Message, field: str
    ) -> Any:
        if deserializer is None:
            return data
        topic, _ = place = place_of(message)
        try:
            # confluent-kafka's stub allows no headers of this type; its class takes any.
            context = SerializationContext(topic, field, message.headers())  # type: ignore[arg-type]
            return deserializer(data, context)
        except Exception as error:
            raise DeserializationFailed(
                f"{shown([place])}@{offset_of(message)}: the {field} could not be deserialised: "
                f"{type(error).__name__}: {error}"
            ) from error

    def around(self, handler: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
        return self._around_coroutine(handler) if is_async else Deserialized(self, handler)

    def _around_coroutine(
        self, handler: Callable[..., Awaitable[Any]]
    ) -> Callable[..., Awaitable[Any]]:
        async def call(message: Message) -> Any:
            return await handler(self(message))

        return call


@dataclass(frozen=True, slots=True)
class Deserialized:
    """A handler that is given deserialised messages."""

    deserializing: Deserializing
    handler: Callable[..., Any]

    def __call__(self, message: Message, *unit: Any) -> Any:
        return self.handler(self.deserializing(message), *unit)
