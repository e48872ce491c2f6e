"""Three brokers in processes, of both kinds: what is acknowledged survives every fault that can be
injected."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator

import psutil
import pytest
from confluent_kafka import Consumer

from lossless.contract.faults import Fault, FaultKind, Fired, Unsupported
from lossless.core.messages import OFFSETS_TOPIC
from lossless.engines import cluster
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import BadInput, Unavailable
from lossless.jars import jars
from lossless.jars.java import java
from topics import create_topic, produce, read_all


@pytest.fixture(scope="module", params=["embedded", "apache"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# Apache Kafka takes half a minute for what another test here shows of it in a few seconds.
apache_in_full = pytest.mark.parametrize(
    "engine",
    ["embedded", pytest.param("apache", marks=pytest.mark.full)],
    indirect=True,
    scope="module",
)


@pytest.fixture(scope="module")
def running(engine: str) -> Iterator[PlannedCluster]:
    quick = {"broker.session.timeout.ms": "1000"}
    with cluster(kafka=engine, brokers=3, config=quick, processes=True) as started:
        yield started


@pytest.fixture
def kafka(running: PlannedCluster) -> Iterator[PlannedCluster]:
    """The shared cluster, handed back whole."""
    yield running
    for row in running.status():
        if row.state == "paused":
            running.resume(row.broker)
        if row.state == "dead":
            running.restart(row.broker)
    assert wait_until(running.in_sync, timeout_s=60)


def states(kafka: PlannedCluster) -> dict[int, str]:
    return {row.broker: row.state for row in kafka.status()}


def fire(kafka: PlannedCluster, kind: FaultKind, **target: int | str) -> str:
    fired = kafka.inject(Fault(kind=kind, **target))  # type: ignore[arg-type]
    assert isinstance(fired, Fired)
    return fired.evidence


def numbered(start: int, end: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(0, None, b"%d" % number) for number in range(start, end)]


def test_every_broker_is_listed_and_one_controller_is_active(kafka: PlannedCluster) -> None:
    assert set(kafka.metadata().brokers) == {1, 2, 3}
    assert kafka.controller() in (1, 2, 3)
    assert states(kafka) == {1: "running", 2: "running", 3: "running"}
    assert len(kafka.bootstrap_servers.split(",")) == 3


def test_another_broker_leads_after_the_leader_was_killed_and_nothing_is_lost(
    kafka: PlannedCluster,
) -> None:
    create_topic(kafka.bootstrap_servers, "leader", partitions=1)
    produce(kafka.bootstrap_servers, "leader", numbered(0, 100))
    leader = kafka.leader_of("leader", 0)
    address = next(row.address for row in kafka.status() if row.broker == leader)
    evidence = fire(kafka, FaultKind.LEADER_CRASH, topic="leader", partition=0)
    successor = kafka.leader_of("leader", 0)
    assert successor not in (leader, -1)
    assert f"leader-0 is led by broker {successor} now" in evidence
    assert states(kafka)[leader] == "dead"
    assert wait_until(lambda: leader not in kafka.in_sync_replicas("leader", 0), timeout_s=30)
    produce(kafka.bootstrap_servers, "leader", numbered(100, 200))
    # The dead one returns where it was, and with what it had.
    fire(kafka, FaultKind.BROKER_RESTART, broker=leader)
    assert next(row.address for row in kafka.status() if row.broker == leader) == address
    assert wait_until(lambda: leader in kafka.in_sync_replicas("leader", 0), timeout_s=60)
    values = [message.value() for message in read_all(kafka.bootstrap_servers, "leader")]
    assert values == [b"%d" % number for number in range(200)]


def test_a_paused_broker_loses_its_session_and_comes_back_when_resumed(
    kafka: PlannedCluster,
) -> None:
    follower = next(broker for broker in (1, 2, 3) if broker != kafka.controller())
    assert "is stopped (SIGSTOP)" in fire(kafka, FaultKind.BROKER_PAUSE, broker=follower)
    assert states(kafka)[follower] == "paused"
    assert wait_until(lambda: follower not in kafka.metadata().brokers, timeout_s=30)
    assert "runs again" in fire(kafka, FaultKind.BROKER_RESUME, broker=follower)
    assert states(kafka)[follower] == "running"
    assert wait_until(lambda: follower in kafka.metadata().brokers, timeout_s=30)


@apache_in_full
def test_another_controller_takes_over_when_the_active_one_is_killed(kafka: PlannedCluster) -> None:
    active = kafka.controller()
    evidence = fire(kafka, FaultKind.CONTROLLER_CRASH)
    assert kafka.controller() != active
    assert f"controller {kafka.controller()} is active now" in evidence
    assert states(kafka)[active] == "dead"


@apache_in_full
def test_a_rolling_restart_replaces_every_process_and_loses_nothing(kafka: PlannedCluster) -> None:
    create_topic(kafka.bootstrap_servers, "rolling", partitions=3, min_insync_replicas="2")
    produce(kafka.bootstrap_servers, "rolling", numbered(0, 50))
    before = {row.pid for row in kafka.status()}
    assert "3 brokers restarted" in fire(kafka, FaultKind.ROLLING_RESTART)
    assert before.isdisjoint(row.pid for row in kafka.status())
    assert wait_until(lambda: kafka.in_sync_replicas("rolling", 0) == [1, 2, 3], timeout_s=30)
    assert len(read_all(kafka.bootstrap_servers, "rolling")) == 50


@apache_in_full
def test_a_stopped_broker_ends_in_order(kafka: PlannedCluster) -> None:
    assert "ended in order" in fire(kafka, FaultKind.BROKER_STOP, broker=3)
    assert states(kafka)[3] == "dead"
    with pytest.raises(Unavailable, match="broker 3 is not running"):
        kafka.kill(3)


def test_what_cannot_be_done_to_processes_is_unsupported_and_says_why(
    kafka: PlannedCluster,
) -> None:
    beyond = [FaultKind.POWER_LOSS, FaultKind.DRIVER_CRASH]
    if kafka.plan.engine == "apache":
        beyond += [FaultKind.NETWORK_PARTITION, FaultKind.DISK_FULL, FaultKind.DISK_SLOW]
    for kind in beyond:
        answer = kafka.inject(Fault(kind=kind, broker=1))
        assert isinstance(answer, Unsupported)
        assert answer.why
    assert set(states(kafka).values()) == {"running"}


def test_a_target_that_is_not_there_is_refused_and_the_ones_there_are_named(
    kafka: PlannedCluster,
) -> None:
    with pytest.raises(BadInput, match="no broker 9") as raised:
        kafka.kill(9)
    assert "1, 2, 3" in str(raised.value)
    with pytest.raises(BadInput, match="no topic 'nowhere'"):
        kafka.inject(Fault(kind=FaultKind.LEADER_CRASH, topic="nowhere"))
    with pytest.raises(BadInput, match="broker-crash strikes one broker"):
        kafka.inject(Fault(kind=FaultKind.BROKER_CRASH))
    assert "nowhere" not in kafka.metadata().topics  # looking must not create


def test_kafkas_own_tools_run_on_the_jars_that_are_kept(kafka: PlannedCluster) -> None:
    """What was left out of Kafka's list of jars is needed by none of them."""
    create_topic(kafka.bootstrap_servers, "tools", partitions=1)
    server = ["--bootstrap-server", kafka.bootstrap_servers]
    properties = ["--producer-props", f"bootstrap.servers={kafka.bootstrap_servers}"]
    size = ["--num-records", "100", "--record-size", "10"]
    calls = {
        "TopicCommand": ([*server, "--describe", "--topic", "tools"], "ReplicationFactor: 3"),
        "ProducerPerformance": (
            [*properties, "--topic", "tools", "--throughput", "-1", *size],
            "100 records sent",
        ),
        "VerifiableProducer": (
            [*server, "--topic", "tools", "--max-messages", "10"],
            '"name":"tool_data"',
        ),
        "MetadataQuorumCommand": ([*server, "describe", "--status"], "LeaderId:"),
    }
    class_path = os.pathsep.join(map(str, jars("kafka")))
    jvm = [str(java()), "-XX:TieredStopAtLevel=1", "-cp", class_path]
    running = {
        tool: subprocess.Popen(
            [*jvm, f"org.apache.kafka.tools.{tool}", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for tool, (arguments, _) in calls.items()
    }
    outputs = {tool: process.communicate(timeout=60)[0] for tool, process in running.items()}
    for tool, (_, answer) in calls.items():
        assert answer in outputs[tool], (tool, outputs[tool])
    said = outputs["MetadataQuorumCommand"].split("LeaderId:")[1].split()[0]
    assert kafka.plan.node_of_voter(int(said)) == kafka.controller()


def test_a_cluster_in_this_process_leaves_its_random_numbers_alone() -> None:
    random.seed(7)
    before = random.getstate()
    with cluster(brokers=3) as kafka:
        create_topic(kafka.bootstrap_servers, "orders")
        produce(kafka.bootstrap_servers, "orders", [(0, b"k", b"v")])
    assert random.getstate() == before


def test_a_setting_that_is_refused_leaves_nothing_running(
    engine: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = tmp_path_factory.mktemp("refused")
    before = {child.pid for child in psutil.Process().children()}
    with (
        pytest.raises(BadInput, match=r"broker 1 did not start: .*num.partitions"),
        cluster(
            kafka=engine,
            brokers=1,
            config={"num.partitions": "many"},
            data=data,
            processes=True,
        ),
    ):
        pytest.fail("it started")
    assert {child.pid for child in psutil.Process().children()} == before
    assert [path.name for path in data.iterdir()] == ["cluster.lock"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"brokers": 0}, "between 1 and 16"),
        ({"brokers": 17}, "between 1 and 16"),
        ({"controllers": 8}, "between 1 and 7"),
        ({"brokers": 1, "racks": ["a", "b"]}, "some would be empty"),
        ({"config": {"node.id": "7"}}, "node.id cannot be configured"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_before_anything_starts(
    wrong: dict[str, object], message: str
) -> None:
    with pytest.raises(BadInput, match=message), cluster(**wrong):  # type: ignore[arg-type]
        pytest.fail("it started")


@apache_in_full
def test_a_group_begins_though_a_broker_is_dead_and_its_coordinators_have_a_replica_there(
    engine: str,
) -> None:
    """In a cluster of its own, in which there has been no group yet."""
    quick = {"broker.session.timeout.ms": "1000"}
    with cluster(kafka=engine, brokers=3, config=quick, processes=True) as kafka:
        servers = kafka.bootstrap_servers
        create_topic(servers, "begins", partitions=1)
        produce(servers, "begins", numbered(0, 3))
        dead = next(broker for broker in (1, 2, 3) if broker != kafka.controller())
        kafka.kill(dead)
        assert wait_until(lambda: dead not in kafka.metadata().brokers, timeout_s=30)
        assert OFFSETS_TOPIC not in kafka.metadata().topics
        settings = {"bootstrap.servers": servers, "group.id": "begins", "log_level": 0}
        consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
        consumer.subscribe(["begins"])
        read: list[bytes | None] = []

        def has_read_all() -> bool:
            told = consumer.consume(3, 0.1)
            read.extend(message.value() for message in told if message.error() is None)
            return len(read) >= 3

        try:
            assert wait_until(has_read_all, timeout_s=60)
        finally:
            consumer.close()
        assert read == [b"0", b"1", b"2"]
        kafka.restart(dead)
        assert wait_until(
            lambda: kafka.in_sync_replicas(OFFSETS_TOPIC, 0) == [1, 2, 3], timeout_s=60
        )
