"""A disk that lost or changed something: the broker recovers, says so, or refuses; never lies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from crash_disks import broker_folder, copies, difference, log_folder, output_of
from crash_load import Load, value_of
from crash_rounds import kill, loaded, restart, running, wait_for, wait_for_records

from lossless.engines.local.cluster import LocalCluster
from lossless.errors import Unavailable
from lossless.log.batch import HEADER_SIZE
from lossless.log.checkpoints import RECOVERY_POINT
from lossless.log.files import ASIDE
from topics import create_topic

BURST = 4_500  # records of 1 kB by each of two producers: three segments in each of two partitions
PARTITIONS = 2


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with running(tmp_path_factory.mktemp("damage") / "cluster") as started:
        yield started


@pytest.fixture(scope="module")
def load(cluster: LocalCluster) -> Iterator[Load]:
    """With closed segments. After all these tests everything must be as it should."""
    with loaded(cluster, "damaged", PARTITIONS, burst=BURST) as started:
        yield started


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def come_back(cluster: LocalCluster, load: Load, *brokers: int) -> None:
    restart(cluster, list(brokers))
    wait_for_records(load)
    wait_for(cluster.in_sync, "all replicas in sync")


# What a crash may do to a disk


def test_a_torn_tail_is_cut_off_and_fetched_again(cluster: LocalCluster, load: Load) -> None:
    broker = cluster.leader_of(load.topic, 0)
    kill(cluster, [broker])
    torn = segments(log_folder(cluster, broker, load.topic, 0))[-1]
    size = torn.stat().st_size
    with torn.open("ab") as file:
        file.truncate(size - 100)  # a part of the last batch
        file.write(os.urandom(5_000))
    come_back(cluster, load, broker)


def _is_of_node(name: str) -> bool:
    return name == "replication-offset-checkpoint"


@pytest.mark.parametrize(
    "pattern",
    [
        "*.index",
        "*.timeindex",
        "*.txnindex",
        "*.snapshot",
        "leader-epoch-checkpoint",
        "recovery-point",
        "replication-offset-checkpoint",
    ],
)
def test_a_deleted_file_that_follows_from_the_log_is_made_anew(
    cluster: LocalCluster, load: Load, pattern: str
) -> None:
    broker = cluster.leader_of(load.topic, 0)
    folder = broker_folder(cluster, broker) / "node"
    if not _is_of_node(pattern):
        folder = log_folder(cluster, broker, load.topic, 0)
    wait_for(lambda: any(folder.glob(pattern)), f"a file {pattern}")  # some are written in a while
    kill(cluster, [broker])
    for file in folder.glob(pattern):
        file.unlink()
    come_back(cluster, load, broker)


def test_everything_that_follows_from_the_log_may_be_gone_after_a_clean_stop(
    cluster: LocalCluster, load: Load
) -> None:
    broker = cluster.leader_of(load.topic, 0)
    cluster.stop_broker(broker)
    for partition in range(PARTITIONS):
        for file in log_folder(cluster, broker, load.topic, partition).iterdir():
            if file.suffix != ".log" and file.name != "clean-shutdown":
                file.unlink()
    come_back(cluster, load, broker)
    made = {file.suffix for file in log_folder(cluster, broker, load.topic, 0).iterdir()}
    assert {".index", ".timeindex", ".txnindex"} <= made


def test_what_was_aborted_stays_unseen_when_the_index_of_it_is_gone(cluster: LocalCluster) -> None:
    topic = "aborted"
    create_topic(cluster.bootstrap_servers, topic, partitions=1, segment_bytes=str(1 << 20))
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "log_level": 0}
    )
    producer.init_transactions(30)
    for number in range(8):
        producer.begin_transaction()
        for _ in range(200):
            producer.produce(topic, value=b"%d" % number + b"." * 1000, partition=0)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)
    brokers = [node.id for node in cluster.plan.brokers]
    kill(cluster, brokers)
    for broker in brokers:
        gone = list(log_folder(cluster, broker, topic, 0).glob("*.txnindex"))
        assert any(file.stat().st_size for file in gone)
        for file in gone:
            file.unlink()
    restart(cluster, brokers)
    found = values_from_start(cluster, topic, count=800)
    assert {value[:1] for value in found} == {b"0", b"2", b"4", b"6"}


def values_from_start(cluster: LocalCluster, topic: str, *, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"from-start-of-{topic}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: list[bytes] = []

    def has_all() -> bool:
        messages = consumer.consume(1000, 0.5)
        found.extend(message.value() or b"" for message in messages if message.error() is None)
        return len(found) >= count

    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        wait_for(has_all, f"{count} records of {topic}")
    finally:
        consumer.close()
    return found


# What nobody may forget


def test_a_controller_that_forgot_its_vote_does_not_start(
    cluster: LocalCluster, load: Load
) -> None:
    node = cluster.plan.brokers[-1].id
    kill(cluster, [node])
    state = broker_folder(cluster, node).parent / "controller" / "node" / "quorum-state"
    kept = state.read_bytes()
    state.unlink()
    with pytest.raises(Unavailable):
        cluster.restart(node)
    assert "it is not known how this node has voted" in output_of(cluster, node)
    state.write_bytes(kept)
    come_back(cluster, load, node)


# What a disk changed


def flip_a_bit(segment: Path) -> None:
    """In the middle of a batch's records: nothing but the checksum can tell."""
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size // 2)
        around = file.read(4 * HEADER_SIZE)
        at = segment.stat().st_size // 2 + around.index(b"......")
        file.seek(at)
        file.write(b"/")


def wait_for_flush(folder: Path) -> None:
    second = int(segments(folder)[1].stem)
    wait_for(
        lambda: int((folder / RECOVERY_POINT).read_text() or 0) >= second,
        "a flush of what is closed",
    )


def test_a_leader_that_finds_a_flipped_bit_stops_and_nobody_gets_it(
    cluster: LocalCluster, load: Load
) -> None:
    leader = cluster.leader_of(load.topic, 0)
    folder = log_folder(cluster, leader, load.topic, 0)
    wait_for_flush(folder)
    flip_a_bit(segments(folder)[0])
    before = load.progress()[0]
    found = values_from_start(cluster, load.topic, count=before)
    require_as_sent(load, found)
    wait_for(lambda: cluster.leader_of(load.topic, 0) != leader, "another leader")
    assert f"{folder}: the checksum of batch" in output_of(cluster, leader)
    come_back(cluster, load, leader)
    assert list(folder.parent.glob(f"{folder.name}{ASIDE}*"))


def test_a_follower_with_a_flipped_bit_serves_it_to_nobody_when_it_leads(
    cluster: LocalCluster, load: Load
) -> None:
    leader = cluster.leader_of(load.topic, 0)
    others = [broker for broker in cluster.in_sync_replicas(load.topic, 0) if broker != leader]
    for follower in others:
        folder = log_folder(cluster, follower, load.topic, 0)
        wait_for_flush(folder)
    damaged = others[0]
    flip_a_bit(segments(log_folder(cluster, damaged, load.topic, 0))[0])
    kill(cluster, [leader])
    wait_for(
        lambda: cluster.leader_of(load.topic, 0) in others, "another leader than the killed one"
    )
    restart(cluster, [leader])
    wait_for(cluster.in_sync, "all replicas in sync")
    if cluster.leader_of(load.topic, 0) != damaged:
        kill(cluster, [others[1]])
        wait_for(lambda: cluster.leader_of(load.topic, 0) not in (others[1], -1), "a leader")
        restart(cluster, [others[1]])
    found = values_from_start(cluster, load.topic, count=load.progress()[0])
    require_as_sent(load, found)
    dead = [row.broker for row in cluster.status() if row.state == "dead"]
    come_back(cluster, load, *dead)


def require_as_sent(load: Load, found: list[bytes]) -> None:
    told = load.acknowledged[0]
    for offset, stored in enumerate(found):
        assert told.get(offset, value_of(stored)) == value_of(stored)


def test_replicas_that_differ_in_a_byte_are_told_apart(cluster: LocalCluster, load: Load) -> None:
    """The judgement itself can fail: else the tests above would say nothing."""
    by_broker = copies(cluster, load.topic, 0)
    one = next(iter(by_broker.values()))
    changed = bytes(one.batches[0].data[:-1]) + b"/"
    other = one._replace(batches=(one.batches[0]._replace(data=changed), *one.batches[1:]))
    assert difference(one, one) is None
    assert difference(one, other) == "batch 0 differs from batch 0"
