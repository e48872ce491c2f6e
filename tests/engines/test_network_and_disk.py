"""What only brokers of this package can suffer: a cut network, a full disk, a slow one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lossless.contract.faults import Fault, FaultKind, Fired, Unsupported
from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.local.probe import metadata_of
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput
from topics import create_topic, produce, read_all

QUICK = {"broker.session.timeout.ms": "1000", "replica.lag.time.max.ms": "2000"}


@pytest.fixture(scope="module", params=[False, True], ids=["in this process", "in processes"])
def running(request: pytest.FixtureRequest) -> Iterator[PlannedCluster]:
    with cluster(config=QUICK, processes=request.param) as started:
        yield started


@pytest.fixture
def kafka(running: PlannedCluster) -> Iterator[PlannedCluster]:
    yield running
    running.mend()
    for row in running.status():
        if row.state == "dead":
            running.restart(row.broker)
    assert wait_until(running.in_sync, timeout_s=30)


def leader_told_by(kafka: PlannedCluster, broker: int, topic: str) -> int:
    """By this broker itself: a client would go on to ask others."""
    answer = metadata_of(kafka.plan, kafka.node(broker))
    assert answer is not None
    told = [known.partitions[0].leader_id for known in answer.topics if known.name == topic]
    return int(told[0]) if told else -1


def created(kafka: PlannedCluster, topic: str, min_insync_replicas: str = "2") -> int:
    """The leader, once every broker knows of the topic."""
    create_topic(
        kafka.bootstrap_servers, topic, partitions=1, min_insync_replicas=min_insync_replicas
    )
    assert wait_until(
        lambda: all(leader_told_by(kafka, broker, topic) > 0 for broker in (1, 2, 3)), timeout_s=30
    )
    return kafka.leader_of(topic, 0)


def numbered(start: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(0, None, b"%d" % number) for number in range(start, end)]


def test_an_isolated_leader_still_believes_in_itself_while_another_is_elected(
    kafka: PlannedCluster,
) -> None:
    leader = created(kafka, "isolated")
    fired = kafka.inject(Fault(kind=FaultKind.NETWORK_PARTITION, broker=leader))
    assert isinstance(fired, Fired)
    assert f"broker {leader}: hears nothing of" in fired.evidence
    (other, *_) = {1, 2, 3} - {leader}
    assert wait_until(
        lambda: leader_told_by(kafka, other, "isolated") not in (leader, -1), timeout_s=30
    )
    assert leader_told_by(kafka, leader, "isolated") == leader
    assert "mended" in kafka.mend().evidence
    assert wait_until(lambda: leader_told_by(kafka, leader, "isolated") != leader, timeout_s=30)


def test_a_follower_that_is_cut_off_from_its_leader_leaves_the_in_sync_set_and_comes_back(
    kafka: PlannedCluster,
) -> None:
    leader = created(kafka, "cut", min_insync_replicas="1")
    # Not the controller itself: the leader has to reach it.
    follower = next(b for b in (1, 2, 3) if b not in (leader, kafka.controller()))
    assert f"broker {follower}: hears nothing of broker {leader}" in (
        kafka.cut(follower, leader).evidence
    )
    # Acknowledged once the one that does not fetch is out of the in-sync set.
    produce(kafka.bootstrap_servers, "cut", numbered(0, 5))
    assert wait_until(lambda: follower not in kafka.in_sync_replicas("cut", 0), timeout_s=30)
    kafka.mend()
    assert wait_until(lambda: len(kafka.in_sync_replicas("cut", 0)) == 3, timeout_s=60)
    assert len(read_all(kafka.bootstrap_servers, "cut")) == 5


def test_a_broker_whose_disk_is_full_stops_and_nothing_acknowledged_is_lost(
    kafka: PlannedCluster,
) -> None:
    leader = created(kafka, "full")
    produce(kafka.bootstrap_servers, "full", numbered(0, 50))
    assert "no space left" in kafka.fill_disk(leader).evidence
    produce(kafka.bootstrap_servers, "full", numbered(50, 100))

    def is_dead() -> bool:
        return next(row.state for row in kafka.status() if row.broker == leader) == "dead"

    assert wait_until(is_dead, timeout_s=30)
    assert "back in the cluster" in kafka.restart(leader).evidence
    values = [message.value() for message in read_all(kafka.bootstrap_servers, "full")]
    assert values == [b"%d" % number for number in range(100)]


def test_a_slow_disk_is_slow_and_loses_nothing(kafka: PlannedCluster) -> None:
    leader = created(kafka, "slow")
    assert "takes 20 ms more" in kafka.slow_disk(leader, 20).evidence
    produce(kafka.bootstrap_servers, "slow", numbered(0, 20))
    assert len(read_all(kafka.bootstrap_servers, "slow")) == 20


def test_what_makes_no_sense_is_refused(kafka: PlannedCluster) -> None:
    with pytest.raises(BadInput, match="cut off from itself"):
        kafka.cut(1, 1)
    with pytest.raises(BadInput, match="no broker 9"):
        kafka.isolate(9)
    with pytest.raises(BadInput, match="is not slower"):
        kafka.slow_disk(1, 0)
    assert kafka.mend().evidence == "nothing was cut, full or slow"
    assert isinstance(kafka.inject(Fault(kind=FaultKind.POWER_LOSS)), Unsupported)
