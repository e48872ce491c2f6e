from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_clients import Sending
from scripted_broker import read_frame, request_of

from lossless.engines import cluster
from lossless.log.batch import Record, build
from lossless.proxy import Address, Proxy
from lossless.wire.codec import read, response_class

# In make test a claim (P4) goes through the proxy to Apache Kafka; the cluster alone takes 10 s.
pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def apache() -> Iterator[Any]:
    with cluster(kafka="apache", brokers=3) as started:
        yield started


def test_a_group_reads_from_apache_kafka_through_the_proxy_alone(apache: Any) -> None:
    with Proxy(apache.bootstrap_servers) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("proxied", 3, 3)])["proxied"].result(20)
        ports = {at.port for at, _ in proxy.brokers.values()}
        assert {broker.port for broker in admin.list_topics(timeout=10).brokers.values()} == ports

        sending = Sending(proxy.bootstrap_servers, "proxied", enable_idempotence=True)
        for number in range(300):
            sending.send(str(number))
            if number == 150:
                proxy.drop_after("produce")
        sending.finish()
        assert sending.errors == []

        consumer = Consumer(
            {
                "bootstrap.servers": proxy.bootstrap_servers,
                "group.id": "proxied",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe(["proxied"])
        values: list[int] = []
        while len(values) < 300:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None
            values.append(int(message.value()))
        consumer.commit(asynchronous=False)
        consumer.close()
        assert sorted(values) == list(range(300))

        counters = proxy.counters
        assert counters.dropped == {"produce": 1}
        assert {"metadata", "find_coordinator"} <= set(counters.rewritten)
        assert counters.requests["join_group"] >= 1
        assert proxy.troubles == ()


def ask(address: Address, key: int, version: int, fields: dict[str, Any]) -> Any:
    with socket.create_connection(address, timeout=20) as client:
        client.sendall(request_of(key, version, 1, fields))
        frame = read_frame(client)
    assert frame is not None
    return read(response_class(key, version), frame, 9)


def test_what_apache_kafka_tells_of_brokers_and_controllers_names_the_proxy(
    apache: Any,
) -> None:
    with Proxy(apache.bootstrap_servers) as proxy:
        admin = AdminClient({"bootstrap.servers": proxy.bootstrap_servers, "log_level": 0})
        admin.create_topics([NewTopic("elsewhere", 1, 3)])["elsewhere"].result(20)
        leader = apache.leader_of("elsewhere", 0)
        other = next(node for node in proxy.brokers if node != leader)
        at = proxy.brokers[other][0]

        brokers = ask(at, 60, 1, {"endpoint_type": 1}).brokers
        assert {node.broker_id: node.port for node in brokers} == {
            number: there.port for number, (there, _) in proxy.brokers.items()
        }

        topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
        (node, *_) = ask(at, 55, 2, {"topics": topics}).nodes
        (listener,) = node.listeners
        real = {address.port for _, address in proxy.brokers.values()}
        assert listener.port not in real
        socket.create_connection((listener.host, listener.port), timeout=10).close()
        proxy.wait_until(lambda counters: counters.rewritten.get("describe_quorum") == 1)

        # Who writes to the wrong broker is told who leads (KIP-951).
        records = build([Record(0, 0, None, b"value", ())]).data
        topics = [{"name": "elsewhere", "partition_data": [{"index": 0, "records": records}]}]
        fields = {"acks": -1, "timeout": 1000, "topic_data": topics}
        (endpoint,) = ask(at, 0, 11, fields).node_endpoints
        assert (endpoint.node_id, endpoint.port) == (leader, proxy.brokers[leader][0].port)
        assert proxy.counters.rewritten["produce"] == 1
