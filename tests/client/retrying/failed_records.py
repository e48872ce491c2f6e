"""Records as a consumer reads them, and what other programs write on their dead letters."""

from __future__ import annotations

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from lossless.client.retrying import Failure, Forward

THEN_MS = 1_700_000_000_000
NOW_MS = 1_700_000_060_000


def message(
    topic: str = "orders",
    *,
    partition: int = 3,
    offset: int = 42,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    headers: list[tuple[str, bytes | None]] | None = None,
    timestamp_ms: int = THEN_MS,
) -> Message:
    return Message(
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value,
        headers=headers,
        timestamp=(TIMESTAMP_CREATE_TIME, timestamp_ms),
    )


def raised(error: BaseException) -> BaseException:
    """With a stack trace, as a handler leaves it."""
    try:
        raise error
    except BaseException as caught:
        return caught


def failure(
    failed: Message | None = None,
    error: BaseException | None = None,
    *,
    attempt: int = 1,
    now_ms: int = NOW_MS,
) -> Failure:
    return Failure(
        message=failed or message(),
        error=raised(error or ValueError("no such customer")),
        attempt=attempt,
        now_ms=now_ms,
        group="billing",
    )


def forwarded(record: Message, forward: Forward, *, offset: int = 7) -> Message:
    """The record as it is read from where it was forwarded to."""
    return message(
        forward.topic,
        partition=0 if forward.partition is None else forward.partition,
        offset=offset,
        key=record.key(),
        value=record.value(),
        headers=list(forward.headers),
        timestamp_ms=NOW_MS,
    )
