"""The headers of a record that is forwarded because it failed.

Written as Spring Kafka writes them, so that its tools read ours: text in UTF-8, the partition and
the attempts as an int of 4 bytes, offset and timestamp as a long of 8, the two times of
`retry_topic-` as Java's BigInteger (DeadLetterRecordManager, DeadLetterPublishingRecovererFactory
of Spring Kafka 4). `retry_topic-attempts` counts the attempt that comes, as Spring does: a letter
after three failures says 4.

The size is bounded. The stack trace and the message give way when the record is near the limit,
so that a record that fitted into its topic fits into the next.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from confluent_kafka import Message

from lossless.client import headers as names
from lossless.client.errors import text_of_error
from lossless.client.record import Headers
from lossless.client.retrying.bytes_in_headers import (
    big_integer,
    by_name,
    bytes_of,
    first,
    headers_of,
    last,
    number_of,
    placed,
    text_of,
    timestamp_of,
)

RECORD_BYTES_MAX = 1_000_000  # message.max.bytes of librdkafka; brokers take 48,588 more
MESSAGE_BYTES_MAX = 1_024
STACK_TRACE_BYTES_MAX = 8_192

RETRY_SUFFIX = "-retry"

_ATTEMPTS_MAX = 1_000_000  # more are not believed: anybody can write headers
_RECORD_OVERHEAD_BYTES = 100  # lengths, deltas and the header of a batch
_HEADER_OVERHEAD_BYTES = 8

_FORWARDING = (
    "kafka_dlt-",
    "kafka_original-",
    "kafka_exception-",
    "kafka_key-exception-",
    "retry_topic-",
    "__connect.errors.",
    "__streams.errors.",
    "__dlq.errors.",
)

_SIGNATURES = (names.APPLICATION, names.HOST, names.OPERATION_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a forwarded record was read first."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    group: str | None
    retry_timestamp: bytes  # as it came, or as Java writes it

    @property
    def place(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def origin_of(message: Message, *, group: str | None, retry_suffix: str = RETRY_SUFFIX) -> Origin:
    """The place it came from, if it lies on a retry topic; else the place where it lies.

    Headers alone prove nothing: a record that was sent back by another tool may still have them.
    """
    headers = by_name(message)
    topic, partition, offset = placed(message)
    _, timestamp_ms = timestamp_of(message)
    original = text_of(first(headers, names.ORIGINAL_TOPIC))
    if original is None or not is_retry_topic(topic, of=original, suffix=retry_suffix):
        return Origin(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            group=group,
            retry_timestamp=big_integer(timestamp_ms),
        )
    then_ms = _within(number_of(first(headers, names.ORIGINAL_TIMESTAMP)), 8)
    return Origin(
        topic=original,
        partition=_within(number_of(first(headers, names.ORIGINAL_PARTITION)), 4),
        offset=_within(number_of(first(headers, names.ORIGINAL_OFFSET)), 8),
        timestamp_ms=timestamp_ms if then_ms < 0 else then_ms,
        group=text_of(first(headers, names.ORIGINAL_CONSUMER_GROUP)) or group,
        retry_timestamp=last(headers, names.RETRY_ORIGINAL_TIMESTAMP)
        or big_integer(timestamp_ms if then_ms < 0 else then_ms),
    )


def attempts_before(message: Message, *, retry_suffix: str = RETRY_SUFFIX) -> int:
    """Failed attempts before the record came here; 0 on the topic it was sent to."""
    headers = by_name(message)
    topic, _, _ = placed(message)
    original = text_of(first(headers, names.ORIGINAL_TOPIC))
    if original is None or not is_retry_topic(topic, of=original, suffix=retry_suffix):
        return 0
    told = number_of(last(headers, names.RETRY_ATTEMPTS)) or 1
    return min(max(0, told - 1), _ATTEMPTS_MAX)


def due_ms_of(message: Message, *, retry_suffix: str = RETRY_SUFFIX) -> int | None:
    """When a record on a retry topic may be tried; None for all others."""
    headers = by_name(message)
    topic, _, _ = placed(message)
    original = text_of(first(headers, names.ORIGINAL_TOPIC))
    if original is None or not is_retry_topic(topic, of=original, suffix=retry_suffix):
        return None
    return number_of(last(headers, names.RETRY_BACKOFF_TIMESTAMP))


def is_of_another_group(message: Message, group: str) -> bool:
    """Whether a record of a retry topic failed in another group, which tries it again. One that
    does not say whose it is belongs to every group."""
    owner = text_of(first(by_name(message), names.ORIGINAL_CONSUMER_GROUP))
    return owner is not None and owner != group


def is_retry_topic(topic: str, *, of: str, suffix: str = RETRY_SUFFIX) -> bool:
    return topic.startswith(f"{of}{suffix}-") or topic == f"{of}{suffix}"


def forwarded_headers(
    message: Message,
    *,
    origin: Origin,
    attempts: int,
    error: BaseException | None,
    due_ms: int | None,
    record_bytes_max: int = RECORD_BYTES_MAX,
) -> list[tuple[str, bytes | None]]:
    """All headers of the forwarded record: its own, where it is from, and why it goes."""
    found = own_headers(message)
    if not any(name == names.OPERATION_ID for name, _ in found):
        # Two copies of one record, because somebody crashed in between, must be told as such.
        found.append((names.OPERATION_ID, origin.place.encode()))
    found += [
        (names.ORIGINAL_TOPIC, origin.topic.encode()),
        (names.ORIGINAL_PARTITION, origin.partition.to_bytes(4, "big", signed=True)),
        (names.ORIGINAL_OFFSET, origin.offset.to_bytes(8, "big", signed=True)),
        (names.ORIGINAL_TIMESTAMP, origin.timestamp_ms.to_bytes(8, "big", signed=True)),
    ]
    if origin.group is not None:
        found.append((names.ORIGINAL_CONSUMER_GROUP, origin.group.encode()))
    found += [
        (names.RETRY_ATTEMPTS, (attempts + 1).to_bytes(4, "big", signed=True)),
        (names.RETRY_ORIGINAL_TIMESTAMP, origin.retry_timestamp),
    ]
    if due_ms is not None:
        found.append((names.RETRY_BACKOFF_TIMESTAMP, big_integer(due_ms)))
    if error is not None:
        room = record_bytes_max - _size(message, found)
        found += _reasons(error, room)
    return found


def own_headers(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers that it had when it was first sent, in their order.

    Who forwards may sign as well, behind who sent it: of signatures the first one is the source's.
    """
    signed: set[str] = set()
    found = []
    for name, value in headers_of(message):
        if _is_forwarding(name) or name in signed:
            continue
        if name in _SIGNATURES:
            signed.add(name)
        found.append((name, value))
    return found


def exception_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else _dotted(kind)


def _reasons(error: BaseException, room: int) -> list[tuple[str, bytes | None]]:
    """The exception, as much of it as there is room for: its name first, its trace last."""
    trace = "".join(traceback.format_exception(error))
    found: list[tuple[str, bytes | None]] = []
    for name, value in (
        (names.EXCEPTION_FQCN, _head(exception_name(error), MESSAGE_BYTES_MAX)),
        (names.EXCEPTION_MESSAGE, _head(text_of_error(error), min(MESSAGE_BYTES_MAX, room // 2))),
        (names.EXCEPTION_STACKTRACE, _tail(trace, min(STACK_TRACE_BYTES_MAX, room // 2))),
    ):
        size = len(name) + len(value) + _HEADER_OVERHEAD_BYTES
        if size <= room:
            found.append((name, value))
            room -= size
    return found


def _head(text: str, bytes_max: int) -> bytes:
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return data
    mark = "…".encode()
    kept = data[: max(0, bytes_max - len(mark))].decode(errors="ignore").encode()
    return kept + mark if bytes_max >= len(mark) else b""


def _tail(text: str, bytes_max: int) -> bytes:
    """The end of a Python trace says where it was raised, and what."""
    data = text.encode(errors="replace")
    if len(data) <= bytes_max:
        return data
    mark = "…\n".encode()
    if bytes_max <= len(mark):
        return b""
    return mark + data[-(bytes_max - len(mark)) :].decode(errors="ignore").encode()


def _size(message: Message, headers: Headers) -> int:
    """What the record takes on the wire, at most."""
    return (
        _RECORD_OVERHEAD_BYTES
        + len(bytes_of(message.key()) or b"")
        + len(bytes_of(message.value()) or b"")
        + sum(len(name) + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in headers)
    )


def _within(number: int | None, length: int) -> int:
    """What fits into so many bytes; -1, which means not known, for what does not."""
    return number if number is not None and 0 <= number < 2 ** (8 * length - 1) else -1


def _is_forwarding(name: str) -> bool:
    return name.startswith(_FORWARDING)


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
