"""Builders for tests of single machines: real logs in memory, and every rule by its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lossless.core.messages import (
    UNKNOWN_EPOCH,
    Error,
    Fetched,
    FetchPartition,
    ListOffsets,
    OffsetKind,
    TopicPartition,
    WriteTxnMarker,
)
from lossless.core.metadata import PartitionState
from lossless.core.replica import Replica, ReplicaConfig
from lossless.log.batch import Record, build, parse_all
from lossless.log.log import Log, LogConfig
from lossless.log.memory import MemoryStore
from lossless.log.rules import RULES, Rules

PARTITION = TopicPartition("orders", 0)


def without(*names: str) -> Rules:
    """All rules but these."""
    return replace(RULES, **dict.fromkeys(names, False))


def records(
    *values: bytes,
    timestamp_ms: int = 0,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch as a producer sends it."""
    return build(
        [Record(n, timestamp_ms, None, value) for n, value in enumerate(values or (b"v",))],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    ).data


def values(log: Log) -> list[bytes]:
    return [
        record.value or b""
        for batch in log.batches()
        if not batch.is_control
        for record in batch.records()
    ]


def led_by(
    leader: int,
    epoch: int,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    replicas: tuple[int, ...] = (1, 2, 3),
    partition_epoch: int | None = None,
) -> PartitionState:
    return PartitionState(
        replicas, isr, leader, epoch, epoch if partition_epoch is None else partition_epoch
    )


class Replicas:
    """The replicas of one partition, each on its broker, with nothing between them: whoever is told
    to fetch does so, and hears the answer at once."""

    def __init__(
        self,
        *brokers: int,
        rules: Rules = RULES,
        config: ReplicaConfig | None = None,
        log_config: LogConfig | None = None,
    ) -> None:
        self.rules, self.config, self.log_config = rules, config, log_config
        self.now_ms = 0
        self.ineligible: set[int] = set()
        self.stores = {broker: MemoryStore() for broker in brokers or (1, 2, 3)}
        self.by_broker = {broker: self._opened(broker) for broker in self.stores}

    def __getitem__(self, broker: int) -> Replica:
        return self.by_broker[broker]

    def _opened(self, broker: int, high_watermark: int = 0) -> Replica:
        return Replica(
            PARTITION,
            broker,
            Log(self.stores[broker], self.log_config, self.rules),
            high_watermark=high_watermark,
            config=self.config,
            rules=self.rules,
            is_eligible=lambda other, _: other not in self.ineligible,
        )

    def restart(self, broker: int, high_watermark: int = 0) -> Replica:
        """The process is another, the disk is not; the high watermark is as of a checkpoint."""
        self.by_broker[broker] = self._opened(broker, high_watermark)
        return self[broker]

    def told(self, state: PartitionState, *brokers: int, min_isr: int = 1) -> None:
        for broker in brokers or self.by_broker:
            self[broker].on_partition_state(state, min_isr, self.now_ms)

    def append(self, broker: int, *data: bytes, acks: int = 1) -> None:
        for one in data:
            produced, _ = self[broker].append(records(one), acks, self.now_ms)
            assert not produced.error

    def ask(self, follower: int, leader: int, asked: FetchPartition | None = None) -> Fetched:
        """What the leader says to a follower's fetch, which does not hear it."""
        wanted = asked or self[follower].next_fetch()
        return self[leader].on_follower_fetch(follower, 1, wanted, self.now_ms)

    def fetch(self, follower: int, leader: int, times: int = 1) -> Fetched:
        for _ in range(times):
            asked = self[follower].next_fetch()
            fetched = self.ask(follower, leader, asked)
            self[follower].on_fetched(asked, fetched)
        return fetched

    def values(self, broker: int) -> list[bytes]:
        return values(self[broker].log)


# What a consumer and a coordinator ask of a replica


def with_and_without(*rules: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("rules", "is_on"), [(RULES, True), (without(*rules), False)], ids=["on", "off"]
    )


def read(
    replica: Replica, offset: int = 0, *, read_committed: bool = False, epoch: int = UNKNOWN_EPOCH
) -> Fetched:
    return replica.on_consumer_fetch(FetchPartition(PARTITION, offset, epoch), read_committed)


def seen(replica: Replica, offset: int = 0, *, read_committed: bool = False) -> list[bytes]:
    """What a consumer reads, markers left out."""
    fetched = read(replica, offset, read_committed=read_committed)
    assert fetched.error is Error.NONE
    return [
        record.value or b""
        for batch in parse_all(fetched.data)
        if not batch.is_control
        for record in batch.records()
    ]


def latest(replica: Replica, *, read_committed: bool = False) -> tuple[Error, int]:
    return replica.on_list_offsets(
        ListOffsets(PARTITION, UNKNOWN_EPOCH, OffsetKind.LATEST, read_committed)
    )[1:3]


def ended(
    replica: Replica, *, committed: bool, producer_id: int = 7, epoch: int = 0, coordinator: int = 0
) -> Error:
    marker = WriteTxnMarker(PARTITION, producer_id, epoch, coordinator, committed)
    return replica.append_marker(marker, 0).produced.error
