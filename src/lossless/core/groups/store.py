"""The groups of one shard, and what they have committed.

A group id names one group: a classic one or a consumer group. One that has offsets and no record
of its own is a simple group: classic, empty, and without a protocol. So it is after every way to
get there, whether its record was deleted or compacted away, or never written.

    classic    what is stored changes in `apply`; a rebalance in progress is nobody else's business
    consumer   everything changes in `apply`
    offsets    everything changes in `apply` and `apply_marker`
"""

from __future__ import annotations

from typing import Any

from lossless.core.groups.classic_group import ClassicGroup
from lossless.core.groups.consumer_group import ConsumerGroup
from lossless.core.groups.offset_store import OffsetStore
from lossless.core.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    Key,
    OffsetCommitKey,
    OffsetCommitValue,
    Value,
)
from lossless.core.messages import Producer


class GroupStore:
    def __init__(self) -> None:
        self.classic: dict[str, ClassicGroup] = {}
        self.consumer: dict[str, ConsumerGroup] = {}
        self.offsets = OffsetStore()

    def get(self, group_id: str) -> ClassicGroup | ConsumerGroup | None:
        return self.consumer.get(group_id) or self.classic.get(group_id)

    def all(self) -> list[ClassicGroup | ConsumerGroup]:
        return [*self.classic.values(), *self.consumer.values()]

    # What the log says

    def apply(self, offset: int, key: Key, value: Value | None, producer: Producer | None) -> None:
        match key, value:
            case OffsetCommitKey(), OffsetCommitValue():
                self.offsets.commit(key, value, offset, producer)
                self._keep_if_simple(key.group)
            case OffsetCommitKey(), _:
                self.offsets.forget(key)
            case GroupMetadataKey(), GroupMetadataValue():
                group = self.classic.setdefault(key.group, ClassicGroup(key.group))
                group.on_stored(value)
            case GroupMetadataKey(), _:
                self.classic.pop(key.group, None)
                self._keep_if_simple(key.group)
            case _:
                self._apply_to_consumer_group(key, value)

    def _apply_to_consumer_group(self, key: Key, value: Value | None) -> None:
        group = self.consumer.get(key.group)
        if group is None:
            if value is None:
                return
            group = self.consumer[key.group] = ConsumerGroup(key.group)
            self.classic.pop(key.group, None)
        if not group.apply(key, value):
            del self.consumer[key.group]
            self._keep_if_simple(key.group)

    def _keep_if_simple(self, group_id: str) -> None:
        if self.get(group_id) is None and self.offsets.has_any(group_id):
            self.classic[group_id] = ClassicGroup(group_id)

    def durable(self) -> Any:
        """All that a new coordinator would know, too. Values that can be compared."""
        return (
            {key: group.stored for key, group in self.classic.items() if group.stored is not None},
            dict(self.consumer),
            self.offsets,
        )
