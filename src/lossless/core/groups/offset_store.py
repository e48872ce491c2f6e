"""The offsets that groups have committed, and those whose transactions are still open.

Rules learnt
- What counts is the last commit in the log, not the last one that became visible: an offset that
  was committed outside a transaction, after the transaction's own, stays when the transaction
  ends. So a commit remembers where in the log it is.
- A tombstone takes the pending offsets with it. They would come back when the transaction ends.
- A producer whose epoch is over may write no more. Its coordinator wrote a marker with a later
  epoch, and what came after that would be in a transaction that nobody ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from lossless.core.groups.records import OffsetCommitKey, OffsetCommitValue
from lossless.core.messages import Producer, TopicPartition


class Committed(NamedTuple):
    value: OffsetCommitValue
    at_offset: int  # where in the log of this shard


_Offsets = dict[str, dict[TopicPartition, Committed]]  # by group


@dataclass(slots=True)
class OffsetStore:
    committed: _Offsets = field(default_factory=dict)
    pending: dict[int, _Offsets] = field(default_factory=dict)  # by producer id
    producer_epochs: dict[int, int] = field(default_factory=dict)

    # Questions

    def get(self, group_id: str, partition: TopicPartition) -> OffsetCommitValue | None:
        found = self.committed.get(group_id, {}).get(partition)
        return None if found is None else found.value

    def of(self, group_id: str) -> dict[TopicPartition, OffsetCommitValue]:
        found = self.committed.get(group_id, {})
        return {partition: commit.value for partition, commit in found.items()}

    def pending_of(self, group_id: str) -> set[TopicPartition]:
        """The partitions for which a transaction has yet to say whether its offset counts."""
        return {
            partition
            for offsets in self.pending.values()
            for partition in offsets.get(group_id, ())
        }

    def has_any(self, group_id: str) -> bool:
        return group_id in self.committed or any(
            group_id in offsets for offsets in self.pending.values()
        )

    def groups(self) -> set[str]:
        return {*self.committed, *(group for offsets in self.pending.values() for group in offsets)}

    def is_fenced(self, producer: Producer) -> bool:
        return producer.epoch < self.producer_epochs.get(producer.id, producer.epoch)

    # What the log says

    def commit(
        self,
        key: OffsetCommitKey,
        value: OffsetCommitValue,
        at_offset: int,
        producer: Producer | None,
    ) -> None:
        offsets = self.committed
        if producer is not None:
            self.producer_epochs[producer.id] = producer.epoch
            offsets = self.pending.setdefault(producer.id, {})
        partition = TopicPartition(key.topic, key.partition)
        offsets.setdefault(key.group, {})[partition] = Committed(value, at_offset)

    def forget(self, key: OffsetCommitKey) -> None:
        partition = TopicPartition(key.topic, key.partition)
        for offsets in (self.committed, *self.pending.values()):
            found = offsets.get(key.group)
            if found is not None:
                found.pop(partition, None)
                if not found:
                    del offsets[key.group]

    def end_transaction(self, producer: Producer, committed: bool) -> None:
        self.producer_epochs[producer.id] = producer.epoch
        ended = self.pending.pop(producer.id, {})
        if not committed:
            return
        for group_id, offsets in ended.items():
            current = self.committed.setdefault(group_id, {})
            for partition, commit in offsets.items():
                if partition not in current or current[partition].at_offset < commit.at_offset:
                    current[partition] = commit
