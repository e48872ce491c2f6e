"""What to do with a record whose handler raised. Pure: time and chance are arguments.

A policy answers a `Failure` with one of three decisions:

    Again(delay_s)     the same record, here, later; its partition (or key) waits, polling goes on
    Forward(topic, …)  to a retry topic or to the dead letters; it counts as finished when the
                       forwarded copy is acknowledged, not before
    Stop(reason)       nobody may go past this record

    InPlace        again and again, waiting longer each time; then dead letters, or stop
    RetryTopics    <topic>-retry-0, -retry-1, … each with its delay; then <topic>-dlt
    DeadLetters    straight to <topic>-dlt

Names of topics are Spring Kafka's, those with an index. A forwarded record gets the time of its
forwarding: with its own, an old one could be deleted by the retention of the retry topic before it
is tried. Its own time stands in the headers, and comes back with `lossless dead-letters replay`.

Groups that read one topic share its retry topics. A record is tried again by the group in which it
failed, which its headers name, and passed by in the others. With a `suffix` for each group
(`<topic><suffix>-0`, …) they have retry topics of their own.

A record whose key or value could not be deserialised fails in the same way every time: it goes to
the dead letters, or stops the consumer, without another attempt.

Order. `RetryTopics` lets later records pass the one that waits; with `keep_key_order` there is one
retry topic, where a record is retried in place, and later records of its key are forwarded behind
it (`behind`; see `key_order.py`). They keep the number of their partition, so both topics need as
many. A record that goes to the dead letters is passed by, in every policy: that is what it means.
"""

from __future__ import annotations

import random
import re
import sys
from dataclasses import dataclass, field
from typing import Literal, Protocol

from confluent_kafka import Message

from lossless.client.errors import DeserializationFailed, text_of_error
from lossless.client.record import Headers
from lossless.client.retrying.bytes_in_headers import placed
from lossless.client.retrying.forwarding import (
    RECORD_BYTES_MAX,
    RETRY_SUFFIX,
    attempts_before,
    due_ms_of,
    exception_name,
    forwarded_headers,
    origin_of,
)
from lossless.errors import BadInput

Exceptions = tuple[type[BaseException], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    message: Message
    error: BaseException
    attempt: int  # from 1: how often it was tried here, in this process
    now_ms: int
    group: str | None = None


@dataclass(frozen=True, slots=True)
class Again:
    delay_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Forward:
    topic: str
    headers: Headers  # all of them: the record's own and those that say where it is from
    partition: int | None = None  # None: by the key
    is_dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    reason: str


Decision = Again | Forward | Stop


class RetryPolicy(Protocol):
    def decide(self, failure: Failure) -> Decision: ...

    def due_ms(self, message: Message) -> int | None:
        """When a record on a retry topic may be tried; None for one that need not wait."""
        ...

    def retry_topics(self, topic: str) -> tuple[str, ...]:
        """What has to be read as well; the topics must exist."""
        ...

    def dead_letter_topic(self, topic: str) -> str | None: ...


def dead_letter_topic(topic: str) -> str:
    return f"{topic}-dlt"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Longer each time, up to a bound; a part of each delay is chance, so that many that failed
    together do not come back together."""

    first_s: float = 1.0
    factor: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.2  # the part of a delay that is chance
    random: random.Random = field(default_factory=random.Random, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (self.first_s >= 0 and self.factor >= 1 and self.max_s >= self.first_s):
            raise BadInput(
                f"a back-off of {self.first_s:g} s, times {self.factor:g}, up to {self.max_s:g} s "
                "does not grow",
                hint="first_s from 0, factor from 1, max_s at least first_s",
            )
        if not 0 <= self.jitter <= 1:
            raise BadInput(f"jitter = {self.jitter:g} is not a part of a delay", hint="from 0 to 1")

    def delay_s(self, attempt: int) -> float:
        """After this many failed attempts."""
        try:
            full_s = min(self.max_s, self.first_s * self.factor ** (attempt - 1))
        except OverflowError:
            full_s = self.max_s
        return full_s * (1 - self.jitter * self.random.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class InPlace:
    """Pause, keep, go on polling, try again."""

    attempts: int | None = None  # None: for ever
    backoff: Backoff = field(default_factory=Backoff)
    on: Exceptions = (Exception,)
    not_on: Exceptions = ()
    then: Literal["dead-letter", "stop"] = "dead-letter"
    record_bytes_max: int = RECORD_BYTES_MAX

    def __post_init__(self) -> None:
        if self.attempts is not None and self.attempts < 1:
            raise BadInput(f"attempts = {self.attempts}: a record is tried at least once")
        if self.then not in ("dead-letter", "stop"):
            raise BadInput(f'then = "{self.then}" is not known', hint='"dead-letter" or "stop"')

    def decide(self, failure: Failure) -> Decision:
        if _is_retried(failure, self.on, self.not_on) and (
            self.attempts is None or failure.attempt < self.attempts
        ):
            return Again(self.backoff.delay_s(failure.attempt))
        if self.then == "stop":
            return Stop(_told(failure))
        return _to_dead_letters(failure, self.record_bytes_max)

    def due_ms(self, message: Message) -> int | None:  # noqa: ARG002
        return None

    def retry_topics(self, topic: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def dead_letter_topic(self, topic: str) -> str | None:
        return dead_letter_topic(topic) if self.then == "dead-letter" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTopics:
    """Later, elsewhere, while others go on."""

    delays_s: tuple[float, ...] = (10, 60, 600)
    suffix: str = RETRY_SUFFIX  # of the names of retry topics, before their index
    keep_key_order: bool = False
    on: Exceptions = (Exception,)
    not_on: Exceptions = ()
    record_bytes_max: int = RECORD_BYTES_MAX

    def __post_init__(self) -> None:
        if not self.delays_s or not all(delay_s >= 0 for delay_s in self.delays_s):
            raise BadInput(
                f"delays_s = {self.delays_s} are not delays",
                hint="one number of seconds for each retry; for none use DeadLetters()",
            )

        if not re.fullmatch(r"[A-Za-z0-9._-]+", self.suffix):
            raise BadInput(
                f"suffix = {self.suffix!r} is not a part of a topic's name",
                hint="letters, digits, '.', '_' and '-', at least one",
            )

    def decide(self, failure: Failure) -> Decision:
        if not _is_retried(failure, self.on, self.not_on):
            return self._to_dead_letters(failure)
        topic, _, _ = placed(failure.message)
        original = origin_of(failure.message, group=None, retry_suffix=self.suffix).topic
        failed = attempts_before(failure.message, retry_suffix=self.suffix) + failure.attempt
        # Delays are used up by the retry topics that it came through, not by its attempts, which
        # would also count what was tried again after a crash; in order, there is only one topic.
        used = failed - 1 if self.keep_key_order else self._next_index(topic, original)
        if used >= len(self.delays_s):
            return self._to_dead_letters(failure)
        if self.keep_key_order and topic != original:
            return Again(self.delays_s[used])
        return self._forward(
            failure.message,
            group=failure.group,
            index=used,
            due_ms=failure.now_ms + round(self.delays_s[used] * 1000),
            attempts=failed,
            error=failure.error,
        )

    def behind(self, message: Message, *, group: str | None, now_ms: int) -> Forward:
        """For a record that was not tried, because an earlier one of its key waits."""
        return self._forward(message, group=group, index=0, due_ms=now_ms, attempts=0, error=None)

    def due_ms(self, message: Message) -> int | None:
        return due_ms_of(message, retry_suffix=self.suffix)

    def retry_topics(self, topic: str) -> tuple[str, ...]:
        count = 1 if self.keep_key_order else len(self.delays_s)
        return tuple(f"{topic}{self.suffix}-{index}" for index in range(count))

    def dead_letter_topic(self, topic: str) -> str | None:
        return dead_letter_topic(topic)

    def _to_dead_letters(self, failure: Failure) -> Forward:
        return _to_dead_letters(failure, self.record_bytes_max, retry_suffix=self.suffix)

    def _next_index(self, topic: str, original: str) -> int:
        """Of the retry topic to go to from here; one of a name that is not ours is the last."""
        if topic == original:
            return 0
        index = topic.removeprefix(f"{original}{self.suffix}-")
        return int(index) + 1 if index.isdecimal() else sys.maxsize

    def _forward(
        self,
        message: Message,
        *,
        group: str | None,
        index: int,
        due_ms: int,
        attempts: int,
        error: BaseException | None,
    ) -> Forward:
        origin = origin_of(message, group=group, retry_suffix=self.suffix)
        _, partition, _ = placed(message)
        return Forward(
            topic=f"{origin.topic}{self.suffix}-{index}",
            partition=partition if self.keep_key_order else None,
            headers=forwarded_headers(
                message,
                origin=origin,
                attempts=attempts,
                error=error,
                due_ms=due_ms,
                record_bytes_max=self.record_bytes_max,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Never tried again by itself."""

    record_bytes_max: int = RECORD_BYTES_MAX

    def decide(self, failure: Failure) -> Decision:
        return _to_dead_letters(failure, self.record_bytes_max)

    def due_ms(self, message: Message) -> int | None:  # noqa: ARG002
        return None

    def retry_topics(self, topic: str) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def dead_letter_topic(self, topic: str) -> str | None:
        return dead_letter_topic(topic)


def _is_retried(failure: Failure, on: Exceptions, not_on: Exceptions) -> bool:
    return isinstance(failure.error, on) and not isinstance(
        failure.error, (*not_on, DeserializationFailed)
    )


def _to_dead_letters(
    failure: Failure, record_bytes_max: int, *, retry_suffix: str = RETRY_SUFFIX
) -> Forward:
    origin = origin_of(failure.message, group=failure.group, retry_suffix=retry_suffix)
    return Forward(
        topic=dead_letter_topic(origin.topic),
        is_dead_letter=True,
        headers=forwarded_headers(
            failure.message,
            origin=origin,
            attempts=attempts_before(failure.message, retry_suffix=retry_suffix) + failure.attempt,
            error=failure.error,
            due_ms=None,
            record_bytes_max=record_bytes_max,
        ),
    )


def _told(failure: Failure) -> str:
    topic, partition, offset = placed(failure.message)
    times = "once" if failure.attempt == 1 else f"{failure.attempt} times"
    error = f"{exception_name(failure.error)}: {text_of_error(failure.error)}"
    return f"{topic}-{partition}@{offset} failed {times}, at last with {error}"
