"""Records that were read and are no longer there, after an unclean election: never a silent jump.

Claim C11. Broker 1 has what belongs to groups and never dies; the topic is on 2 and 3.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from consumed import Kafka, Running, Seen, eventually, running

import lossless
from lossless.client.consuming import Consumer
from lossless.client.errors import LogTruncated
from lossless.engines.local.planned import PlannedCluster
from topics import create_new

QUICK = {
    "topic.metadata.refresh.interval.ms": 200,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
KEPT, TAKEN_BACK, WRITTEN_INSTEAD = 5, 4, 9
READ = KEPT + TAKEN_BACK


@pytest.fixture(scope="module")
def replicated() -> Iterator[PlannedCluster]:
    config = {
        "broker.session.timeout.ms": "1000",
        "broker.heartbeat.interval.ms": "200",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
    }
    with lossless.cluster(brokers=3, controllers=1, config=config) as cluster:
        yield cluster


@pytest.fixture
def log(replicated: PlannedCluster) -> Iterator[Kafka]:
    """Five records on both replicas, led by broker 2."""
    name = f"c11-{uuid.uuid4().hex[:8]}"
    kafka = Kafka(replicated.bootstrap_servers, name, name)
    new = NewTopic(
        name,
        1,
        replica_assignment=[[2, 3]],
        config={"unclean.leader.election.enable": "true", "min.insync.replicas": "1"},
    )
    admin = AdminClient({"bootstrap.servers": kafka.servers})
    create_new(admin, new)
    eventually(lambda: replicated.in_sync_replicas(name, 0) == [2, 3])
    kafka.fill(KEPT)
    yield kafka
    for row in replicated.status():
        if row.state == "dead":
            replicated.restart(row.broker)
    eventually(replicated.in_sync)


def write_to_one_replica_only(replicated: PlannedCluster, log: Kafka) -> None:
    replicated.kill(3)
    eventually(lambda: replicated.in_sync_replicas(log.topic, 0) == [2])
    log.fill(TAKEN_BACK, first=KEPT)


def elect_the_other(replicated: PlannedCluster, log: Kafka) -> None:
    """And go past where readers were, so that their offset is in the log again."""
    replicated.kill(2)
    replicated.restart(3)
    eventually(lambda: replicated.leader_of(log.topic, 0) == 3)
    log.fill(WRITTEN_INSTEAD, first=100)


def what_stopped(
    consumer: Consumer, seen: Seen, meanwhile: Callable[[], None] = lambda: None
) -> str:
    reading = Running(consumer, seen)
    try:
        meanwhile()
        reading.join()
    finally:
        reading.close()
    assert isinstance(reading.failure, LogTruncated)
    return reading.failure.what


def test_a_consumer_that_is_told_to_stops_when_the_election_took_records_back(
    replicated: PlannedCluster, log: Kafka
) -> None:
    seen, again = Seen(), Seen()

    def take_back() -> None:
        seen.wait_for_count(KEPT)
        write_to_one_replica_only(replicated, log)
        seen.wait_for_count(READ)
        elect_the_other(replicated, log)

    what = what_stopped(log.consumer(truncated="stop", settings=QUICK), seen, take_back)
    assert f"{log.topic}-0: the log was truncated to 5 by an unclean election" in what
    assert "4 records that were read are no longer there" in what
    assert seen.numbers == list(range(READ))
    assert log.committed() == [READ]  # what was read, and no more than that
    assert "truncated to 5" in what_stopped(log.consumer(settings=QUICK), again)
    assert again.numbers == []


def test_a_consumer_that_may_go_on_reads_from_where_the_logs_part(
    replicated: PlannedCluster, log: Kafka, caplog: pytest.LogCaptureFixture
) -> None:
    seen = Seen()
    instead = list(range(100, 100 + WRITTEN_INSTEAD))
    consumer = log.consumer(truncated="continue", settings=QUICK)
    with running(consumer, seen):
        seen.wait_for_count(KEPT)
        write_to_one_replica_only(replicated, log)
        seen.wait_for_count(READ)
        elect_the_other(replicated, log)
        seen.wait_for(instead)
    assert seen.numbers == [*range(READ), *instead]
    assert consumer.metrics.jumps == 2  # to the first record, and back to where the logs part
    assert "4 records that were read are no longer there" in caplog.text
    assert log.committed() == [KEPT + WRITTEN_INSTEAD]


def test_a_consumer_that_was_away_during_the_election_is_told_when_it_comes_back(
    replicated: PlannedCluster, log: Kafka
) -> None:
    before, stopped, after = Seen(), Seen(), Seen()
    with running(log.consumer(settings=QUICK), before):
        before.wait_for_count(KEPT)
        write_to_one_replica_only(replicated, log)
        before.wait_for_count(READ)
    assert log.committed() == [READ]
    elect_the_other(replicated, log)
    assert "truncated to 5" in what_stopped(log.consumer(settings=QUICK), stopped)
    assert stopped.numbers == []
    with running(log.consumer(truncated="continue", settings=QUICK), after):
        after.wait_for_count(WRITTEN_INSTEAD)
    assert after.numbers == list(range(100, 100 + WRITTEN_INSTEAD))
