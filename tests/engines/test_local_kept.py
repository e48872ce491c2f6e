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
from confluent_kafka.admin import AdminClient

from lossless.engines import cluster
from lossless.errors import BadInput, Unavailable
from topics import create_topic, produce

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
        assert kafka.in_sync_replicas("kept", 0) == [survivor]
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
        "from lossless.engines import cluster; from reading import read_all\n"
        f"with cluster(**{shape!r}, data={str(tmp_path)!r}) as kafka:\n"
        "    print(kafka.bootstrap_servers)\n"
        "    print(len(read_all(kafka.bootstrap_servers, 'kept', partitions=1)))\n"
    )
    again = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.stdout.split() == [address, "20"], again.stderr
