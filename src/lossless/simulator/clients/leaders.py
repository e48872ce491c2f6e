"""What a client believes about who leads, and how it finds out."""

from __future__ import annotations

from lossless.core.machine import Send
from lossless.core.messages import (
    NO_LEADER,
    Metadata,
    MetadataAnswer,
    PartitionLeader,
    TopicPartition,
)
from lossless.simulator.settings import BACKOFF_MS


class Leaders:
    """Asks one broker after the other. What is older than what is known is not believed."""

    def __init__(self, topic: str, brokers: int, first: int) -> None:
        self._topic = topic
        self._brokers = brokers
        self._next = first % brokers
        self._is_asking = False
        self._ask_ms: int | None = 0
        self.known: dict[TopicPartition, PartitionLeader] = {}

    def of(self, partition: TopicPartition) -> PartitionLeader | None:
        known = self.known.get(partition)
        return None if known is None or known.leader == NO_LEADER else known

    def refresh(self, now_ms: int) -> None:
        """What is known was wrong."""
        if self._ask_ms is None and not self._is_asking:
            self._ask_ms = now_ms + BACKOFF_MS

    def question(self, now_ms: int) -> list[Send]:
        if self._is_asking or self._ask_ms is None or now_ms < self._ask_ms:
            return []
        self._is_asking = True
        self._next += 1
        return [Send(1 + self._next % self._brokers, Metadata((self._topic,)))]

    def on_answer(self, answer: MetadataAnswer | None, now_ms: int) -> None:
        self._is_asking = False
        self._ask_ms = None
        for known in () if answer is None else answer.partitions:
            before = self.known.get(known.partition)
            if before is None or known.leader_epoch >= before.leader_epoch:
                self.known[known.partition] = known
        if not self.known or any(known.leader == NO_LEADER for known in self.known.values()):
            self._ask_ms = now_ms + BACKOFF_MS

    @property
    def wake_ms(self) -> int | None:
        return None if self._is_asking else self._ask_ms
