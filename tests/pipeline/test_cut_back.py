"""A log that an unclean election cut back below what was read, and that has grown past it since.

Offsets show nothing of it; leader epochs do. Broker 1 never dies; the topic is on 2 and 3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import lossless
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import PromiseBroken
from lossless.pipeline.audit.log import READ_COMMITTED, AuditedLog, TopicSelection
from lossless.pipeline.ledger import Ledger, Position, SourcePartition
from lossless.pipeline.resume import found_in, resume
from lossless.pipeline.source import SourceLog
from topics import create_new, produce

KEPT, TAKEN_BACK, WRITTEN_INSTEAD = 5, 4, 9
READ = KEPT + TAKEN_BACK


def eventually(condition: Callable[[], bool]) -> None:
    assert wait_until(condition, timeout_s=30, poll_s=0.02)


@pytest.fixture(scope="module")
def cluster() -> Iterator[PlannedCluster]:
    config = {"broker.session.timeout.ms": "1000", "broker.heartbeat.interval.ms": "200"}
    with lossless.cluster(brokers=3, controllers=1, config=config) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def topic(cluster: PlannedCluster) -> str:
    name = f"cut-back-{uuid.uuid4().hex[:8]}"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    new = NewTopic(name, 1, replica_assignment=[[2, 3]], config=config)
    create_new(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), new)
    eventually(lambda: cluster.in_sync_replicas(name, 0) == [2, 3])
    return name


@pytest.fixture(scope="module")
def source(cluster: PlannedCluster) -> Iterator[SourceLog]:
    opened = SourceLog(cluster.client_settings)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def partition(source: SourceLog, topic: str) -> SourcePartition:
    (only,) = source.partitions([topic])
    return only


@pytest.fixture(scope="module")
def read(
    cluster: PlannedCluster, source: SourceLog, topic: str, partition: SourcePartition
) -> Position:
    """Where a pipeline stood when one of the two replicas had everything that it read."""

    def fill(first: int, count: int) -> None:
        records = [(0, None, str(n).encode()) for n in range(first, first + count)]
        produce(cluster.bootstrap_servers, topic, records)

    fill(0, KEPT)
    cluster.kill(3)
    eventually(lambda: cluster.in_sync_replicas(topic, 0) == [2])
    fill(KEPT, TAKEN_BACK)
    epoch = source.leader_epochs([partition])[partition]
    assert source.ranges([partition])[partition].latest == READ
    cluster.kill(2)
    cluster.restart(3)
    eventually(lambda: cluster.leader_of(topic, 0) == 3)
    fill(100, WRITTEN_INSTEAD)
    assert epoch is not None
    return Position(start_offset=0, next_offset=READ, leader_epoch=epoch)


def test_a_start_names_the_offset_that_the_log_was_cut_back_to(
    source: SourceLog, topic: str, partition: SourcePartition, read: Position
) -> None:
    ledger = Ledger(sequence=1, positions={partition: read})
    found = found_in(source, ledger, [topic])
    assert found.log[partition].latest == KEPT + WRITTEN_INSTEAD
    with pytest.raises(PromiseBroken, match=rf"cut back to offset {KEPT} after .* read to {READ}"):
        resume(ledger, found, {}, accept_loss=True)


def test_a_position_below_the_cut_is_in_order(
    source: SourceLog, partition: SourcePartition, read: Position
) -> None:
    assert read.leader_epoch is not None
    assert source.cut_back({partition: (KEPT, read.leader_epoch)}) == {}
    now = source.leader_epochs([partition])[partition]
    assert now is not None
    assert now > read.leader_epoch
    assert source.cut_back({partition: (KEPT + WRITTEN_INSTEAD, now)}) == {}


def test_the_audit_finds_the_same(
    cluster: PlannedCluster, topic: str, partition: SourcePartition, read: Position
) -> None:
    selection = TopicSelection(topics=[topic], topic_pattern=None, isolation=READ_COMMITTED)
    log = AuditedLog(cluster.client_settings, selection)
    try:
        bounds = log.bounds([partition])
        assert log.cut_back({partition: read}, bounds) == {partition: KEPT}
    finally:
        log.close()


def test_a_range_that_holds_records_is_told_from_one_that_does_not(
    source: SourceLog, partition: SourcePartition, read: Position
) -> None:
    assert read.next_offset == READ
    end = source.ranges([partition])[partition].latest
    assert source.first_records({partition: 2}, isolation="read_committed") == {partition: 2}
    assert source.first_records({partition: end}, isolation="read_committed") == {}


def test_a_log_that_retention_emptied_was_not_cut_back(
    cluster: PlannedCluster, source: SourceLog, read: Position
) -> None:
    assert read.next_offset == READ  # broker 2 is down since
    cluster.restart(2)
    name = f"emptied-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    create_new(admin, NewTopic(name, 1, replica_assignment=[[2, 3]]))
    eventually(lambda: cluster.in_sync_replicas(name, 0) == [2, 3])
    produce(cluster.bootstrap_servers, name, [(0, None, str(n).encode()) for n in range(KEPT)])
    (partition,) = source.partitions([name])
    epoch = source.leader_epochs([partition])[partition]
    assert epoch is not None
    for answer in admin.delete_records([TopicPartition(name, 0, KEPT)]).values():
        answer.result(30)
    for broker, other in ((2, 3), (3, 2)):
        cluster.kill(broker)
        eventually(lambda other=other: cluster.leader_of(name, 0) == other)  # type: ignore[misc]
        cluster.restart(broker)
        eventually(lambda: cluster.in_sync_replicas(name, 0) == [2, 3])
    position = Position(start_offset=0, next_offset=KEPT, leader_epoch=epoch)
    ledger = Ledger(sequence=1, positions={partition: position})
    assert source.cut_back({partition: (KEPT, epoch)}) == {}
    going_on = resume(ledger, found_in(source, ledger, [name]), {}, accept_loss=False)
    assert going_on.offsets == {partition: KEPT}
    selection = TopicSelection(topics=[name], topic_pattern=None, isolation=READ_COMMITTED)
    log = AuditedLog(cluster.client_settings, selection)
    try:
        assert log.cut_back(ledger.positions, log.bounds([partition])) == {}
    finally:
        log.close()
