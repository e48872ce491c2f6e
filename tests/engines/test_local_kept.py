"""A cluster with a controller of its own and a folder of its own: it outlives dead brokers, and
comes back on its ports with its records."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from lossless.engines import cluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable
from topics import create_topic, produce, read_all

QUICK = {"broker.session.timeout.ms": "1000"}


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.full)])
def test_two_of_three_brokers_die_and_the_third_serves_on_then_all_come_back(
    engine: str, tmp_path: Path
) -> None:
    records = [(0, None, b"%d" % number) for number in range(10)]
    racks = ["a", "b", "c"]
    shape = {"kafka": engine, "brokers": 3, "controllers": 1, "racks": racks, "processes": True}
    with cluster(**shape, config=QUICK, data=tmp_path) as kafka:  # type: ignore[arg-type]
        address = kafka.bootstrap_servers
        assert kafka.controller() == 101
        roles = {row.broker: row.role for row in kafka.status()}
        assert roles == {1: "broker", 2: "broker", 3: "broker", 101: "controller"}
        admin = AdminClient({"bootstrap.servers": address})
        described = admin.describe_cluster().result()
        assert {node.id: node.rack for node in described.nodes} == {1: "a", 2: "b", 3: "c"}
        create_topic(address, "kept", partitions=1, min_insync_replicas="1")
        produce(address, "kept", records)
        survivor = kafka.leader_of("kept", 0)
        for broker in {1, 2, 3} - {survivor}:
            kafka.kill(broker)
        # The controllers are no brokers, so their majority stands.
        assert kafka.controller() == 101
        produce(address, "kept", records)
        assert wait_until(lambda: kafka.in_sync_replicas("kept", 0) == [survivor], timeout_s=30)
        processes = [row.pid for row in kafka.status() if row.pid]
    assert not any(map(psutil.pid_exists, processes))

    with (
        pytest.raises(BadInput, match="holds a cluster of 3 brokers"),
        cluster(kafka=engine, brokers=1, data=tmp_path, processes=True),
    ):
        pytest.fail("it started")

    port = int(address.split(",")[0].rpartition(":")[2])
    with (
        socket.create_server(("127.0.0.1", port)),
        pytest.raises(Unavailable, match=f"port {port} of broker 1 is taken"),
        cluster(**shape, data=tmp_path),  # type: ignore[arg-type]
    ):
        pytest.fail("it started")

    # Another process finds what this one left.
    program = (
        "from lossless.engines import cluster; from topics import read_all\n"
        f"with cluster(**{shape!r}, data={str(tmp_path)!r}) as kafka:\n"
        "    print(kafka.bootstrap_servers)\n"
        "    print(len(read_all(kafka.bootstrap_servers, 'kept')))\n"
    )
    again = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.stdout.split() == [address, "20"], again.stderr


def test_the_last_node_closes_its_logs_though_no_controller_answers(tmp_path: Path) -> None:
    """As when a whole cluster is stopped: two of three take the quorum with them."""
    with cluster(brokers=3, config=QUICK, data=tmp_path, processes=True) as kafka:
        create_topic(kafka.bootstrap_servers, "kept", partitions=1)
        produce(kafka.bootstrap_servers, "kept", [(0, None, b"value")])
        assert wait_until(kafka.in_sync, timeout_s=30)
        (log,) = (tmp_path / "broker-3" / "data" / "broker").glob("kept-0.*")
        kafka.kill(1)
        kafka.kill(2)
        assert "ended in order" in kafka.stop_broker(3).evidence
        assert (log / "clean-shutdown").exists()
        for broker in (1, 2, 3):
            kafka.restart(broker)
        assert [each.value() for each in read_all(kafka.bootstrap_servers, "kept")] == [b"value"]


def test_what_was_deleted_while_a_broker_was_dead_leaves_its_disk_when_it_is_back(
    tmp_path: Path,
) -> None:
    with cluster(brokers=3, config=QUICK, data=tmp_path, processes=True) as kafka:
        address = kafka.bootstrap_servers
        for topic in ("kept", "deleted"):
            create_topic(address, topic, partitions=1)
            produce(address, topic, [(0, None, b"value")])
        assert wait_until(kafka.in_sync, timeout_s=30)
        folder = tmp_path / "broker-3" / "data" / "broker"

        def topics() -> list[str]:
            found = (one.name.partition("-0.")[0] for one in folder.iterdir())
            return sorted(name for name in found if name in ("kept", "deleted"))

        assert topics() == ["deleted", "kept"]
        kafka.kill(3)
        admin = AdminClient({"bootstrap.servers": address})
        admin.delete_topics(["deleted"])["deleted"].result(30)
        kafka.restart(3)
        assert wait_until(lambda: topics() == ["kept"], timeout_s=30)
        assert wait_until(kafka.in_sync, timeout_s=30)
        for other in (1, 2):
            kafka.kill(other)
            kafka.restart(other)
        assert [each.value() for each in read_all(address, "kept")] == [b"value"]


def test_deleted_records_stay_deleted_when_all_brokers_are_killed_at_once(tmp_path: Path) -> None:
    with cluster(brokers=3, config=QUICK, data=tmp_path, processes=True) as kafka:
        address = kafka.bootstrap_servers
        create_topic(address, "emptied", partitions=1)
        produce(address, "emptied", [(0, None, b"%d" % number) for number in range(100)])
        emptied = TopicPartition("emptied", 0, 100)
        admin = AdminClient({"bootstrap.servers": address})
        deleted = admin.delete_records([emptied])[emptied].result(60)
        assert deleted.low_watermark == 100
        for broker in (1, 2, 3):
            kafka.kill(broker)
        for broker in (3, 2, 1):
            kafka.restart(broker)
        assert wait_until(kafka.in_sync, timeout_s=60)
        consumer = Consumer({"bootstrap.servers": address, "group.id": "readers"})
        try:
            assert consumer.get_watermark_offsets(emptied, 60) == (100, 100)
        finally:
            consumer.close()
