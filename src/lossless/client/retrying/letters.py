"""Dead letters of every family, read into one value.

Spring's, which are ours too (both of its sets of names: `kafka_dlt-…` and, from @RetryableTopic,
`kafka_…`), Connect's (DeadLetterQueueReporter), Streams' (ExceptionHandlerUtils, KIP-1034) and
those of share groups (ShareGroupDLQManager, KIP-1191).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from confluent_kafka import Message

from lossless.client import headers as names
from lossless.client.record import Headers
from lossless.client.retrying.bytes_in_headers import (
    by_name,
    bytes_of,
    decimal_of,
    first,
    last,
    number_of,
    placed,
    text_of,
    timestamp_of,
)
from lossless.client.retrying.forwarding import own_headers

Family = Literal["spring", "connect", "streams", "share", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record of a dead letter topic, whoever wrote it."""

    family: Family
    topic: str  # where it lies
    partition: int
    offset: int
    timestamp_ms: int | None  # Connect and Streams keep the time of the original here
    key: bytes | None
    value: bytes | None
    headers: Headers = ()  # those that the original had
    original_topic: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    original_timestamp_ms: int | None = None
    group: str | None = None  # the consumer group, the connector or the share group
    attempts: int | None = None
    exception: str | None = None  # the name of its class
    message: str | None = None
    stack_trace: str | None = field(default=None, repr=False)

    @property
    def is_letter(self) -> bool:
        """Whether it has the headers of any family: another record says nothing about a failure."""
        return self.family != "none"

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"

    @property
    def original_place(self) -> str | None:
        if self.original_topic is None:
            return None
        partition = "" if self.original_partition is None else f"-{self.original_partition}"
        offset = "" if self.original_offset is None else f"@{self.original_offset}"
        return f"{self.original_topic}{partition}{offset}"

    @property
    def has_record(self) -> bool:
        """Share groups write letters that only say where the record was, unless told to copy it."""
        return self.family != "share" or self.key is not None or self.value is not None


def read_letter(message: Message) -> DeadLetter:
    headers = by_name(message)
    for reader in (_spring, _connect, _streams, _share):
        read = reader(message, headers)
        if read is not None:
            return read
    return _letter(message, "none")


def _spring(message: Message, headers: Mapping[str, Sequence[bytes | None]]) -> DeadLetter | None:
    # @RetryableTopic leaves `dlt-` out of every name but the group's.
    prefix = next(
        (each for each in ("kafka_dlt-", "kafka_") if f"{each}original-topic" in headers), None
    )
    if prefix is None:
        return None
    attempts = number_of(last(headers, names.RETRY_ATTEMPTS))
    return _letter(
        message,
        "spring",
        original_topic=text_of(first(headers, f"{prefix}original-topic")),
        original_partition=number_of(first(headers, f"{prefix}original-partition")),
        original_offset=number_of(first(headers, f"{prefix}original-offset")),
        original_timestamp_ms=number_of(first(headers, f"{prefix}original-timestamp")),
        group=text_of(first(headers, names.ORIGINAL_CONSUMER_GROUP)),
        attempts=None if attempts is None else attempts - 1,
        exception=text_of(last(headers, f"{prefix}exception-fqcn"))
        or text_of(last(headers, f"{prefix}key-exception-fqcn")),
        text=text_of(last(headers, f"{prefix}exception-message"))
        or text_of(last(headers, f"{prefix}key-exception-message")),
        stack_trace=text_of(last(headers, f"{prefix}exception-stacktrace"))
        or text_of(last(headers, f"{prefix}key-exception-stacktrace")),
    )


def _connect(message: Message, headers: Mapping[str, Sequence[bytes | None]]) -> DeadLetter | None:
    prefix = "__connect.errors."
    if not any(name.startswith(prefix) for name in headers):
        return None
    known, timestamp_ms = timestamp_of(message)
    return _letter(
        message,
        "connect",
        original_topic=text_of(last(headers, f"{prefix}topic")),
        original_partition=decimal_of(last(headers, f"{prefix}partition")),
        original_offset=decimal_of(last(headers, f"{prefix}offset")),
        original_timestamp_ms=timestamp_ms if known else None,
        group=text_of(last(headers, f"{prefix}connector.name")),
        exception=text_of(last(headers, f"{prefix}exception.class.name")),
        text=text_of(last(headers, f"{prefix}exception.message")),
        stack_trace=text_of(last(headers, f"{prefix}exception.stacktrace")),
    )


def _streams(message: Message, headers: Mapping[str, Sequence[bytes | None]]) -> DeadLetter | None:
    prefix = "__streams.errors."
    if not any(name.startswith(prefix) for name in headers):
        return None
    known, timestamp_ms = timestamp_of(message)
    # Streams writes the exception's toString: its class, a colon, its message.
    told = text_of(last(headers, f"{prefix}exception"))
    return _letter(
        message,
        "streams",
        original_topic=text_of(last(headers, f"{prefix}topic")),
        original_partition=decimal_of(last(headers, f"{prefix}partition")),
        original_offset=decimal_of(last(headers, f"{prefix}offset")),
        original_timestamp_ms=timestamp_ms if known else None,
        exception=None if told is None else told.partition(":")[0],
        text=text_of(last(headers, f"{prefix}message")),
        stack_trace=text_of(last(headers, f"{prefix}stacktrace")),
    )


def _share(message: Message, headers: Mapping[str, Sequence[bytes | None]]) -> DeadLetter | None:
    prefix = "__dlq.errors."
    if not any(name.startswith(prefix) for name in headers):
        return None
    return _letter(
        message,
        "share",
        original_topic=text_of(last(headers, f"{prefix}topic")),
        original_partition=decimal_of(last(headers, f"{prefix}partition")),
        original_offset=decimal_of(last(headers, f"{prefix}offset")),
        group=text_of(last(headers, f"{prefix}group")),
        attempts=decimal_of(last(headers, f"{prefix}delivery.count")),
        text=text_of(last(headers, f"{prefix}message")),
    )


def _letter(
    message: Message,
    family: Family,
    *,
    original_topic: str | None = None,
    original_partition: int | None = None,
    original_offset: int | None = None,
    original_timestamp_ms: int | None = None,
    group: str | None = None,
    attempts: int | None = None,
    exception: str | None = None,
    text: str | None = None,
    stack_trace: str | None = None,
) -> DeadLetter:
    topic, partition, offset = placed(message)
    known, timestamp_ms = timestamp_of(message)
    return DeadLetter(
        family=family,
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms if known else None,
        key=bytes_of(message.key()),
        value=bytes_of(message.value()),
        headers=own_headers(message),
        original_topic=original_topic,
        original_partition=_known(original_partition),
        original_offset=_known(original_offset),
        original_timestamp_ms=_known(original_timestamp_ms),
        group=group,
        attempts=attempts,
        exception=exception,
        message=text,
        stack_trace=stack_trace,
    )


def _known(number: int | None) -> int | None:
    return None if number is not None and number < 0 else number
