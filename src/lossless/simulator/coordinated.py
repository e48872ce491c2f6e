"""What coordinators have written down, as it stands in the logs of the internal topics.

__consumer_offsets       a generation and who has what in it; an offset; that one was forgotten
__transaction_state      a transactional id and where its transaction stands
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from lossless.core.broker import Broker
from lossless.core.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from lossless.core.messages import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, TopicPartition
from lossless.core.replica import Replica, Role
from lossless.core.transactions import records as transactions
from lossless.core.transactions.state import Transaction
from lossless.log.batch import MarkerKind, Record
from lossless.simulator.clients.member import decoded_assignment


class Generation(NamedTuple):
    """Of a group, with its members and the partitions that each has."""

    group: str
    number: int
    members: tuple[tuple[str, tuple[int, ...]], ...]

    def told(self) -> str:
        if not self.members:
            return f"group {self.group} is empty"
        shares = [f"{client(one)} has {_several(has)}" for one, has in self.members]
        return f"group {self.group}, generation {self.number}: {'; '.join(shares)}"


class Commit(NamedTuple):
    group: str
    partition: TopicPartition
    offset: int | None  # None: it was forgotten
    is_pending: bool = False  # until its transaction ends

    def told(self) -> str:
        if self.offset is None:
            return f"group {self.group} no longer has an offset of {self.partition}"
        if self.is_pending:
            return (
                f"group {self.group} is at {self.offset} of {self.partition} if the transaction "
                "is committed"
            )
        return f"group {self.group} is at {self.offset} of {self.partition}"


class Decision(NamedTuple):
    transactional_id: str
    transaction: Transaction

    def told(self) -> str:
        known = self.transaction
        where = ", ".join(map(str, known.partitions))
        return (
            f"the transaction of {self.transactional_id} is {known.state.label}, "
            f"epoch {known.producer_epoch}" + (f", of {where}" if where else "")
        )


Written = Generation | Commit | Decision


def client(member_id: str) -> str:
    """Who has this member id: it begins with the client's name and ends with an id of 36 signs."""
    return member_id[:-37]


def led(broker: Broker) -> Iterator[Replica]:
    """The partitions of internal topics that this broker leads."""
    for partition, replica in broker.replicas.items():
        if partition.topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) and replica.role is Role.LEADER:
            yield replica


def written(replica: Replica, offset: int) -> Iterator[Written]:
    """From an offset on."""
    is_group = replica.partition.topic == OFFSETS_TOPIC
    for batch in replica.log.batches(offset):
        if batch.is_control:
            continue
        for record in batch.records():
            if record.offset >= offset:
                found = _group(record) if is_group else _transaction(record)
                if isinstance(found, Commit) and batch.is_transactional:
                    found = found._replace(is_pending=True)
                if found is not None:
                    yield found


def committed(replica: Replica) -> dict[tuple[str, TopicPartition], int | None]:
    """The offset of each group, as a coordinator that reads the log has to find it."""
    offsets: dict[tuple[str, TopicPartition], tuple[int, int | None]] = {}
    pending: dict[int, dict[tuple[str, TopicPartition], tuple[int, int | None]]] = {}
    for batch in replica.log.batches(replica.log.log_start_offset):
        marker = batch.marker() if batch.is_control else None
        if marker is not None:
            ended = pending.pop(batch.producer_id, {})
            for key, (at, offset) in ended.items() if marker.kind is MarkerKind.COMMIT else ():
                if offsets.get(key, (-1, None))[0] < at:  # the last in the log counts
                    offsets[key] = (at, offset)
        if batch.is_control:
            continue
        where = pending.setdefault(batch.producer_id, {}) if batch.is_transactional else offsets
        for record in batch.records():
            found = _group(record)
            if isinstance(found, Commit):
                where[found.group, found.partition] = (record.offset, found.offset)
                for others in pending.values() if found.offset is None else ():
                    others.pop((found.group, found.partition), None)
    return {key: offset for key, (_, offset) in offsets.items()}


def _group(record: Record) -> Written | None:
    key = None if record.key is None else decode_key(record.key)
    value = None if key is None or record.value is None else decode_value(key, record.value)
    if isinstance(key, OffsetCommitKey):
        offset = value.offset if isinstance(value, OffsetCommitValue) else None
        return Commit(key.group, TopicPartition(key.topic, key.partition), offset)
    if isinstance(key, GroupMetadataKey) and isinstance(value, GroupMetadataValue):
        members = tuple(
            (member.member_id, tuple(decoded_assignment(member.assignment)))
            for member in value.members
        )
        return Generation(key.group, value.generation, members)
    return None


def _transaction(record: Record) -> Written | None:
    transactional_id = None if record.key is None else transactions.decode_key(record.key)
    if transactional_id is None or record.value is None:
        return None
    return Decision(transactional_id, transactions.decode_value(record.value))


def _several(partitions: tuple[int, ...]) -> str:
    return ", ".join(map(str, partitions)) or "nothing"
