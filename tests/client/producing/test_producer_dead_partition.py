"""One partition has no leader, the others have: only its keys wait, on disk, in their order."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from reading_back import once

from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
from lossless.client.producing.spool import Spool
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from topics import create_new, read_all

PATIENCE_S = 60
DEAD = 3  # the broker, and the only one that has partition 2
KEYS = 12
SETTINGS = {
    "delivery.timeout.ms": 600,
    "socket.timeout.ms": 500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "linger.ms": 0,
}


@pytest.fixture
def spread(kafka: PlannedCluster) -> str:
    """A topic whose partitions 0, 1 and 2 are on brokers 1, 2 and 3, and nowhere else."""
    name = f"spread-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    new = NewTopic(name, 3, replica_assignment=[[1], [2], [3]])
    create_new(admin, new)
    return name


def parking(kafka: PlannedCluster, folder: Path) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **SETTINGS}
    return Producer(settings, giving_up=Park(folder))


def partitions_of_keys(kafka: PlannedCluster, topic: str) -> dict[str, int]:
    """One record of each key, while all partitions are there."""
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}, audit=False) as producer:
        sent = {str(key): producer.send(topic, b"-1", key=str(key)) for key in range(KEYS)}
    return {key: delivery.result().partition for key, delivery in sent.items()}


def test_only_keys_of_a_partition_without_a_leader_are_parked_and_come_back_in_order(
    kafka: PlannedCluster, spread: str, tmp_path: Path
) -> None:
    partition_of = partitions_of_keys(kafka, spread)
    assert set(partition_of.values()) == {0, 1, 2}
    with parking(kafka, tmp_path) as producer:
        sent = [producer.send(spread, str(n), key=str(n % KEYS)) for n in range(200)]
        assert {delivery.result(PATIENCE_S).partition for delivery in sent} == {0, 1, 2}

        kafka.kill(DEAD)
        assert wait_until(lambda: kafka.leader_of(spread, 2) == -1, timeout_s=PATIENCE_S)
        for number in range(200, 600):
            sent.append(producer.send(spread, str(number), key=str(number % KEYS)))
            if number % 100 == 99:
                producer.flush()
        waiting = [d for n, d in enumerate(sent) if partition_of[str(n % KEYS)] == 2 and n >= 200]
        others = [d for n, d in enumerate(sent) if partition_of[str(n % KEYS)] != 2]
        assert {delivery.result(PATIENCE_S).partition for delivery in others} == {0, 1}
        assert wait_until(lambda: producer.metrics.parked == len(waiting), timeout_s=PATIENCE_S)
        assert all(delivery.parked and not delivery.done for delivery in waiting)

        kafka.restart(DEAD)
        assert {delivery.result(PATIENCE_S).partition for delivery in waiting} == {2}
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=PATIENCE_S)
    _each_key_has_everything_once_and_in_order(kafka, spread, 600)


def test_many_parked_records_of_a_dead_partition_do_not_keep_the_others_waiting(
    kafka: PlannedCluster, spread: str, tmp_path: Path
) -> None:
    partition_of = partitions_of_keys(kafka, spread)
    nobody = {"bootstrap.servers": "127.0.0.1:1", **SETTINGS}
    with Producer(nobody, giving_up=Park(tmp_path), audit=False) as producer:
        for number in range(3_600):
            producer.send(spread, str(number), key=str(number % KEYS))
    waiting = sum(partition_of[str(number % KEYS)] == 2 for number in range(3_600))
    assert waiting > 1_000
    kafka.kill(DEAD)
    assert wait_until(lambda: kafka.leader_of(spread, 2) == -1, timeout_s=PATIENCE_S)
    with parking(kafka, tmp_path) as producer:
        assert wait_until(lambda: producer.metrics.parked == waiting, timeout_s=PATIENCE_S)
        kafka.restart(DEAD)
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=PATIENCE_S)
    _each_key_has_everything_once_and_in_order(kafka, spread, 3_600)


@pytest.mark.full
def test_a_producer_that_ends_meanwhile_leaves_only_keys_of_the_dead_partition_to_the_next(
    kafka: PlannedCluster, spread: str, tmp_path: Path
) -> None:
    partition_of = partitions_of_keys(kafka, spread)
    kafka.kill(DEAD)
    assert wait_until(lambda: kafka.leader_of(spread, 2) == -1, timeout_s=PATIENCE_S)
    with parking(kafka, tmp_path) as producer:
        for number in range(200):
            producer.send(spread, str(number), key=str(number % KEYS))
    spool = Spool(tmp_path, bytes_max=1 << 20)
    left = [int(row.record.value or b"") for row in spool.after(0, 1_000)]
    spool.close()
    assert left == [n for n in range(200) if partition_of[str(n % KEYS)] == 2]

    kafka.restart(DEAD)
    with parking(kafka, tmp_path) as producer:
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=PATIENCE_S)
    _each_key_has_everything_once_and_in_order(kafka, spread, 200)


def _each_key_has_everything_once_and_in_order(
    kafka: PlannedCluster, topic: str, count: int
) -> None:
    found: dict[bytes | None, list[int]] = {}
    for message in once(read_all(kafka.bootstrap_servers, topic)):
        found.setdefault(message.key(), []).append(int(message.value() or b""))
    assert found == {b"%d" % key: [-1, *range(key, count, KEYS)] for key in range(KEYS)}
