"""What a client asks a coordinator: one request at a time, again until there is an answer.

Who coordinates is whoever leads a partition of an internal topic, and is found as leaders are. An
answer that takes too long is waited for no longer: the client asks again on another connection, and
what it sent on the first may still arrive.
"""

from __future__ import annotations

from typing import Any

from lossless.core.coordinator import partition_for
from lossless.core.machine import Send
from lossless.core.messages import Error, TopicPartition
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.settings import BACKOFF_MS, COORDINATOR_PARTITIONS, REQUEST_TIMEOUT_MS
from lossless.simulator.world import OnConnection

# Nothing has been decided: the same request is asked again.
TROUBLES = frozenset(
    {
        Error.COORDINATOR_NOT_AVAILABLE,
        Error.NOT_COORDINATOR,
        Error.COORDINATOR_LOAD_IN_PROGRESS,
        Error.CONCURRENT_TRANSACTIONS,
        Error.REQUEST_TIMED_OUT,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
        Error.OPERATION_NOT_ATTEMPTED,
        Error.UNSTABLE_OFFSET_COMMIT,
    }
)


class Question:
    def __init__(self, leaders: Leaders, topic: str, key: str) -> None:
        self._leaders = leaders
        self._partition = TopicPartition(topic, partition_for(key, COORDINATOR_PARTITIONS))
        self._request: Any = None  # what is to be found out
        self._asked: Any = None  # what is under way
        self._timeout_ms = 0
        self._again_ms = 0
        self._late_ms = 0
        self._connection = 0

    @property
    def is_idle(self) -> bool:
        return self._request is None

    def ask(self, request: Any, timeout_ms: int = REQUEST_TIMEOUT_MS) -> None:
        self._request, self._asked = request, None
        self._timeout_ms, self._again_ms = timeout_ms, 0

    def drop(self) -> None:
        """Nobody wants to know any more."""
        self._request = self._asked = None

    def again(self, now_ms: int) -> None:
        """It was not answered, or not to the point."""
        self._asked = None
        self._again_ms = now_ms + BACKOFF_MS
        self._leaders.refresh(now_ms)

    def sends(self, now_ms: int) -> list[Send]:
        if self._asked is not None and now_ms >= self._late_ms:
            self._connection += 1
            self.again(now_ms)
        if self._request is None or self._asked is not None or now_ms < self._again_ms:
            return []
        coordinator = self._leaders.of(self._partition)
        if coordinator is None:
            self._leaders.refresh(now_ms)
            return []
        # Another value each time, so that answers to two attempts can be told apart.
        self._asked = type(self._request)._make(self._request)
        self._late_ms = now_ms + self._timeout_ms
        return [Send(coordinator.leader, OnConnection(self._asked, self._connection))]

    def is_about(self, request: Any) -> bool:
        return self._asked is request

    def settles(self, answer: Any, error: Error | None, now_ms: int) -> bool:
        """Whether the answer to what is under way decides anything; else it is asked again."""
        if answer is None or error in TROUBLES:
            self.again(now_ms)
            return False
        self.drop()
        return True

    def wakes(self, now_ms: int) -> list[int]:
        if self._asked is not None:
            return [self._late_ms]
        is_due = self._request is None or self._again_ms <= now_ms
        return [] if is_due else [self._again_ms]
