"""A connection whose client has used too much: what it is told, and what is not looked at."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import lossless
from lossless.core.error_codes import Error
from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.waiting import wait_until
from lossless.log.batch import Record, build
from lossless.wire.codec import milliseconds
from lossless.wire.frames import request
from one_connection import OneConnection
from one_request import ask, error_of, written

PRODUCE, FETCH, CREATE_TOPICS, ALTER_QUOTAS, API_VERSIONS, METADATA = 0, 1, 19, 49, 18, 3
TOPIC = "orders"


@pytest.fixture(scope="module")
def cluster() -> Iterator[InProcessCluster]:
    with lossless.cluster(brokers=3) as kafka:
        assert isinstance(kafka, InProcessCluster)
        address = kafka.plan.address(kafka.plan.brokers[0])
        asked = {"name": TOPIC, "num_partitions": -1, "replication_factor": -1}
        asked |= {"assignments": [{"partition_index": 0, "broker_ids": [1, 2, 3]}]}
        made = ask(address, CREATE_TOPICS, 7, topics=[asked], timeout=9_000, validate_only=False)
        assert error_of(made.topics[0]) is Error.NONE
        yield kafka


@pytest.fixture
def address(cluster: InProcessCluster) -> str:
    return cluster.plan.address(cluster.node(1))


def limit(address: str, client_id: str | None, **limits: float) -> None:
    """The broker that is asked has applied it when it answers."""
    named = [{"entity_type": "client-id", "entity_name": client_id}]
    ops = [{"key": key, "value": value, "remove": False} for key, value in limits.items()]
    entries = [{"entity": named, "ops": ops}]
    answer = ask(address, ALTER_QUOTAS, 1, entries=entries, validate_only=False)
    assert error_of(answer.entries[0]) is Error.NONE


def data(size: int) -> bytes:
    return build([Record(0, 0, None, b"x" * size)]).data


def produce(size: int, acks: int) -> dict[str, Any]:
    partition = {"index": 0, "records": data(size)}
    topics = [{"name": TOPIC, "partition_data": [partition]}]
    return {"acks": acks, "timeout": 9_000, "topic_data": topics}


def fetch(session_id: int, epoch: int) -> dict[str, Any]:
    asked = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 24}
    asked |= {"log_start_offset": -1, "current_leader_epoch": -1}
    whole = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 25, "replica_id": -1}
    topics = [{"topic": TOPIC, "partitions": [asked]}]
    return {**whole, "topics": topics, "session_id": session_id, "session_epoch": epoch}


def test_a_fetch_session_survives_answers_without_records(address: str) -> None:
    with OneConnection(address, "unlimited") as client:
        client.ask(PRODUCE, 9, **produce(9_000, acks=-1))
    limit(address, "fetching", consumer_byte_rate=1_100.0)
    with OneConnection(address, "fetching") as client:
        first = client.ask(FETCH, 12, **fetch(0, 0))
        assert first.session_id != 0
        assert milliseconds(first.throttle_time) == 0
        held_back = client.ask(FETCH, 12, **fetch(first.session_id, 1))
        assert milliseconds(held_back.throttle_time) > 0
        assert (held_back.responses, held_back.session_id) == ((), first.session_id)
    with OneConnection(address, "fetching") as client:
        begun = client.ask(FETCH, 12, **fetch(0, 0))
        assert (begun.responses, begun.session_id) == ((), 0)  # no session begins


def test_a_producer_that_wants_no_answer_is_not_read_for_a_while(
    cluster: InProcessCluster, address: str
) -> None:
    limit(address, "silent", producer_byte_rate=1_000.0)
    with OneConnection(address, "silent") as client:
        client.ask(API_VERSIONS, 0)
        broker = cluster._nodes[1].broker
        assert broker is not None
        connections = [one for server in broker.servers for one in server.connections]
        (connection,) = (one for one in connections if one.client_id == "silent")
        client.send(PRODUCE, 9, **produce(60_000, acks=0))
        assert wait_until(lambda: connection._muted_until_s > 0, timeout_s=60)


def test_a_connection_beyond_the_limit_of_its_address_is_closed_and_nothing_is_carried_out(
    address: str,
) -> None:
    named = [{"entity_type": "ip", "entity_name": "127.0.0.2"}]
    ops = [{"key": "connection_creation_rate", "value": 1e-9, "remove": False}]
    entries = [{"entity": named, "ops": ops}]
    answer = ask(address, ALTER_QUOTAS, 1, entries=entries, validate_only=False)
    assert error_of(answer.entries[0]) is Error.NONE
    host, _, port = address.rpartition(":")
    with contextlib.ExitStack() as stack:
        connections = []
        for number in range(40):
            connection = socket.create_connection((host, int(port)), 20, ("127.0.0.2", 0))
            connections.append(stack.enter_context(connection))
            asked = {"name": f"beyond-{number}", "num_partitions": 1, "replication_factor": 1}
            message = written(CREATE_TOPICS, 7, topics=[asked], timeout=9_000, validate_only=False)
            connection.sendall(request(CREATE_TOPICS, 7, 1, "beyond", message, tagged=True))
        assert [connection.recv(1) for connection in connections] == [b""] * 40
    within = {"name": "within", "num_partitions": 1, "replication_factor": 1}
    ask(address, CREATE_TOPICS, 7, topics=[within], timeout=9_000, validate_only=False)
    topics = ask(address, METADATA, 12, topics=None).topics
    assert not [topic.name for topic in topics if topic.name.startswith("beyond")]


@pytest.mark.parametrize("version", [9, 12])
def test_a_client_with_the_name_of_a_node_has_limits(address: str, version: int) -> None:
    limit(address, "broker-2", producer_byte_rate=1_000.0, consumer_byte_rate=1_000.0)
    with OneConnection(address, "broker-2") as client:
        produced = client.ask(PRODUCE, 9, **produce(21_000, acks=-1))
        assert milliseconds(produced.throttle_time) > 0
    with OneConnection(address, "broker-2") as client:
        client.ask(FETCH, version, **fetch(0, -1))
        assert milliseconds(client.ask(FETCH, version, **fetch(0, -1)).throttle_time) > 0


def test_limits_of_clients_do_not_concern_replication(address: str) -> None:
    limit(address, None, consumer_byte_rate=1.0, producer_byte_rate=1e9, request_percentage=1e-6)
    limit(address, "writer", consumer_byte_rate=1e9, request_percentage=1e9)
    with OneConnection(address, "writer") as client:
        for _ in range(5):
            answer = client.ask(PRODUCE, 9, **produce(50_000, acks=-1))
            assert error_of(answer.responses[0].partition_responses[0]) is Error.NONE
            assert milliseconds(answer.throttle_time) == 0
