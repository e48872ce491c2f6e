"""What becomes of a record whose handler raised: the policy decides, here it is done.

An unreachable store is no failure of the record: whatever the policy, the record waits until the
store is back.

A record that is sent on, to a retry topic or to the dead letters, counts as finished when the copy
is acknowledged, and not before: then it is in one place or the other, whatever crashes when.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from confluent_kafka import Message

from lossless.client.consuming.interfaces import offset_of, place_of
from lossless.client.consuming.waiting_keys import WaitingKeys
from lossless.client.errors import ClientError, HandlerFailed, StoreUnavailable, described
from lossless.client.metrics import ConsumerMetrics
from lossless.client.retrying import (
    Again,
    Failure,
    Forward,
    RetryPolicy,
    Stop,
    is_of_another_group,
)
from lossless.client.sending import Sender

logger = logging.getLogger(__name__)

BACK_OFF_FIRST_S = 0.2
BACK_OFF_MAX_S = 10.0


def outage_delay_s(error: StoreUnavailable, outages: int) -> float:
    """How long to wait for a store that was unreachable this many times in a row."""
    delay_s: float = min(BACK_OFF_FIRST_S * 2 ** min(outages - 1, 10), BACK_OFF_MAX_S)
    logger.warning("%s; again in %.1f s", error.what, delay_s)
    return delay_s


DeadLetterHook = Callable[[Message, BaseException | None], object]


class Failures:
    """Asked by workers, of any number of threads."""

    def __init__(
        self,
        policy: RetryPolicy | None,
        metrics: ConsumerMetrics,
        *,
        group: str,
        forwarder: Callable[[], Sender],
        retry_topics: frozenset[str] = frozenset(),
        on_dead_letter: DeadLetterHook | None = None,
    ) -> None:
        self._on_dead_letter = on_dead_letter
        self._retry_topics = retry_topics
        self.waiting_keys: WaitingKeys | None = None
        self.look_for: Callable[[str], object] | None = None  # of a retry topic, which may be new
        self._sent_to: set[str] = set()
        self._policy = policy
        self._metrics = metrics
        self._group = group
        self._forwarder = forwarder
        self._lock = threading.Lock()

    def decide(self, message: Message, error: BaseException, attempt: int) -> float | None:
        """Seconds until it is tried again, or None: it was sent on, and is finished.

        HandlerFailed when neither is allowed.
        """
        with self._lock:
            self._metrics.failed += 1
        if self._policy is None or not isinstance(error, Exception):
            raise _failed(message, described(error)) from error
        decision = self._policy.decide(
            Failure(
                message=message,
                error=error,
                attempt=attempt,
                now_ms=round(time.time() * 1000),
                group=self._group,
            )
        )
        match decision:
            case Again(delay_s):
                logger.info(
                    "%s: attempt %d failed (%s), again in %.1f s",
                    _place(message),
                    attempt,
                    described(error),
                    delay_s,
                )
                with self._lock:
                    self._metrics.retried += 1
                return delay_s
            case Forward():
                offset = self.forward(message, decision, error)
                if self.waiting_keys is not None and not decision.is_dead_letter:
                    self.waiting_keys.on_forwarded(message, offset)
                return None
            case Stop(reason):
                raise _failed(message, reason) from error

    def is_others(self, message: Message) -> bool:
        """Whether another group tries it again: groups share the retry topics of a topic."""
        return message.topic() in self._retry_topics and is_of_another_group(message, self._group)

    def passes_by(self, message: Message) -> bool:
        """Whether it need not be tried: it is another group's, or an earlier record of its key
        waits and it was sent behind it."""
        if self.is_others(message):
            return True
        return self.waiting_keys is not None and self.waiting_keys.sent_behind(message)

    def forward(
        self, message: Message, to: Forward, error: BaseException | None = None
    ) -> int | None:
        """Returns when the copy is acknowledged, with its offset."""
        try:
            acknowledged = (
                self._forwarder()
                .send(
                    to.topic,
                    message.value(),
                    message.key(),
                    headers=to.headers,
                    partition=to.partition,
                )
                .result()
            )
        except ClientError as refused:
            raise HandlerFailed(
                f"{_place(message)} failed, and could not be sent on to {to.topic}: {refused.what}",
                hint=f"does the topic exist, and may this client write to it? {refused.hint or ''}",
                code=refused.code,
            ) from (error or refused)
        with self._lock:
            is_first = to.topic not in self._sent_to
            self._sent_to.add(to.topic)
            if to.is_dead_letter:
                self._metrics.dead_lettered += 1
            else:
                self._metrics.forwarded += 1
        if is_first and to.topic in self._retry_topics and self.look_for is not None:
            self.look_for(to.topic)
        if error is not None:
            logger.warning("%s: %s; sent to %s", _place(message), described(error), to.topic)
        if to.is_dead_letter and self._on_dead_letter is not None:
            try:
                self._on_dead_letter(message, error)
            except Exception:
                logger.exception("on_dead_letter raised; the record is a dead letter all the same")
        offset = getattr(acknowledged, "offset", None)
        return offset if isinstance(offset, int) else None


def _place(message: Message) -> str:
    topic, partition = place_of(message)
    return f"{topic}-{partition}@{offset_of(message)}"


def _failed(message: Message, why: str) -> HandlerFailed:
    return HandlerFailed(
        f"{_place(message)}: the handler raised: {why}",
        hint="mend the handler and start again: it begins with this record; or give a retry "
        "policy that goes past it, such as RetryTopics()",
    )
