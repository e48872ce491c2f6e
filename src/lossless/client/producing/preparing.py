"""From what `send` is given to what librdkafka takes: bytes, and headers that say where from."""

from __future__ import annotations

import secrets
import socket
import time
from base64 import b32encode
from collections.abc import Callable
from typing import TypedDict, Unpack

from confluent_kafka.serialization import MessageField

from lossless.client import headers as names
from lossless.client.producing.checking import (
    BY_KEY,
    check_known,
    check_options,
    checked_headers,
)
from lossless.client.producing.deliveries import Deliveries
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.serializing import Serializer, serialized
from lossless.client.record import Headers, HeadersGiven, Record
from lossless.errors import BadInput


class SendOptions(TypedDict, total=False):
    """What `Producer.send` takes by name, each of it left out as a rule."""

    headers: HeadersGiven
    partition: int | None
    timestamp_ms: int | None
    event_time_ms: int | None
    operation_id: str | None
    on_delivery: Callable[[Delivery], object] | None


_OPTIONS = frozenset(SendOptions.__annotations__)


class Preparing:
    """Of one producer; used by any thread."""

    def __init__(
        self,
        deliveries: Deliveries,
        *,
        application: str,
        serialize_key: Serializer | None,
        serialize_value: Serializer | None,
    ) -> None:
        self._deliveries = deliveries
        for name, function in (
            ("serialize_key", serialize_key),
            ("serialize_value", serialize_value),
        ):
            if function is not None and not callable(function):
                raise BadInput(
                    f"{name} = {function!r} cannot be called",
                    hint="give a function of the value and its context, or None",
                )
        self._serialize_key = serialize_key
        self._serialize_value = serialize_value
        self.serializes = serialize_key is not None or serialize_value is not None
        self.instance = b32encode(secrets.token_bytes(12)).decode().rstrip("=").lower()
        self.id_format = f"{self.instance}-%d".encode()
        self.constant_headers = (
            (names.APPLICATION, application.encode()),
            (names.HOST, socket.gethostname().encode()),
        )

    def prepare(
        self, topic: str, value: object, key: object, **options: Unpack[SendOptions]
    ) -> tuple[Delivery, bytes | None, bytes | None]:
        """The delivery of a record that is about to be sent, its value and its key."""
        if not options.keys() <= _OPTIONS:
            check_known(options, _OPTIONS, topic)
        partition, on_delivery = options.get("partition"), options.get("on_delivery")
        event_time_ms, operation_id = options.get("event_time_ms"), options.get("operation_id")
        timestamp_ms = options.get("timestamp_ms")
        check_options(topic, partition, timestamp_ms, event_time_ms, operation_id, on_delivery)
        # A list, which serializers may add to.
        headers = checked_headers(options.get("headers") or (), topic)
        key = serialized(self._serialize_key, key, topic, MessageField.KEY, headers)
        value = serialized(self._serialize_value, value, topic, MessageField.VALUE, headers)
        if self.serializes:
            headers = checked_headers(headers, topic)
        number = next(self._deliveries.numbers)
        delivery = self._deliveries.new(number)
        if headers or operation_id is not None or event_time_ms is not None:
            delivery.headers = self._headers(number, headers, operation_id, event_time_ms)
        if partition is not None and partition != BY_KEY:
            delivery.partition = partition
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        return delivery, value, key

    def record(
        self,
        delivery: Delivery,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int | None = None,
    ) -> Record:
        return Record(
            topic=topic,
            key=key,
            value=value,
            headers=self.headers_of(delivery),
            partition=delivery.partition,
            timestamp_ms=timestamp_ms or int(time.time() * 1000),
        )

    def headers_of(self, delivery: Delivery) -> Headers:
        return self._headers(delivery.number) if delivery.headers is None else delivery.headers

    def _headers(
        self,
        number: int,
        given: Headers = (),
        operation_id: str | None = None,
        event_time_ms: int | None = None,
    ) -> Headers:
        """The application's own, then ours."""
        found: list[tuple[str, bytes | None]] = [*given]
        if operation_id is not None:
            made: bytes | None = operation_id.encode()
        elif any(name == names.OPERATION_ID for name, _ in found):
            made = None  # it is there already
        else:
            made = self.id_format % number
        there = {name for name, _ in found}  # a record that is sent on keeps where it came from
        found += [header for header in self.constant_headers if header[0] not in there]
        if made is not None:
            found.append((names.OPERATION_ID, made))
        if event_time_ms is not None:
            found.append((names.EVENT_TIME, b"%d" % event_time_ms))
        return found
