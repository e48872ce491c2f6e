"""From bytes to what the application works with, before a record is handed out.

The application gets a copy of the message with the results. The record itself stays as it was read,
so that it can be tried again, and sent on to a retry topic or the dead letters, byte for byte.

A schema registry that does not answer, or refuses the login, is not the fault of a record. It is
treated like an unreachable store: the record waits, whatever the retry policy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message
from confluent_kafka.serialization import MessageField, SerializationContext

from lossless.client.consuming.interfaces import offset_of, place_of, shown
from lossless.client.errors import DeserializationFailed, StoreUnavailable, described
from lossless.errors import BadInput, with_causes

# Base classes of the errors that httpx, requests and Python raise for connections and timeouts, and
# confluent-kafka for the login with a registry.
_UNREACHABLE = frozenset(
    {
        "ConnectionError",
        "OAuthTokenError",
        "Timeout",
        "TimeoutError",
        "TransportError",
        "gaierror",
    }
)
_NOT_NOW = frozenset({401, 403, 408, 429})  # and all from 500 on: statuses of HTTP

# confluent-kafka's, Schema Registry's among them: deserializer(bytes, context) -> anything
Deserializer = Callable[[bytes | None, SerializationContext], Any]


@dataclass(frozen=True, slots=True)
class Deserializing:
    """Can be pickled if its functions can, for handlers in other processes."""

    key: Deserializer | None
    value: Deserializer | None

    def __post_init__(self) -> None:
        for name, function in (("deserialize_key", self.key), ("deserialize_value", self.value)):
            if function is not None and not callable(function):
                raise BadInput(
                    f"{name} = {function!r} cannot be called",
                    hint="give a function of the bytes and their context, or None",
                )

    def __call__(self, message: Message) -> Message:
        """Raises DeserializationFailed, or StoreUnavailable if a schema could not be fetched."""
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
        except StoreUnavailable:
            raise
        except Exception as error:
            if _is_outage(error):
                raise StoreUnavailable(
                    f"{shown([place])}@{offset_of(message)}: the {field} was not deserialised, "
                    f"because a service did not answer: {described(error)}",
                    hint="is the schema registry available, and are its address and login right? "
                    "nothing is wrong with the record",
                ) from error
            raise DeserializationFailed(
                f"{shown([place])}@{offset_of(message)}: the {field} could not be deserialised: "
                f"{described(error)}"
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


def _is_outage(error: BaseException) -> bool:
    """Whether the error, or one of its causes, says that a service did not answer."""
    for each in with_causes(error):
        if any(base.__name__ in _UNREACHABLE for base in type(each).__mro__):
            return True
        status = getattr(each, "http_status_code", None)
        if isinstance(status, int) and (status >= 500 or status in _NOT_NOW):
            return True
    return False
