from __future__ import annotations

import json
import subprocess
import sys

from embedded_brokers import Embedded

from lossless.proxy import Proxy

CLIENT = """
import json, sys, psutil
from confluent_kafka import Consumer, Producer, TopicPartition
bootstrap, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
failed = []
for number in range(count):
    producer.produce(topic, str(number), callback=lambda error, _: error and failed.append(error))
assert producer.flush(30) == 0 and not failed, failed
consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
consumer.assign([TopicPartition(topic, 0, 0)])
values = []
while len(values) < count:
    for message in consumer.consume(count, 1.0):
        assert message.error() is None, message.error()
        values.append(int(message.value()))
peers = {c.raddr.port for c in psutil.Process().net_connections("tcp") if c.raddr}
print(json.dumps({"values": values, "ports": sorted(peers)}))
consumer.close()
"""


def test_clients_write_and_read_through_the_proxy_and_connect_to_nothing_else(
    embedded: Embedded, proxy: Proxy, topic: str, leader: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, proxy.bootstrap_servers, topic, "500"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["values"] == list(range(500))
    assert set(told["ports"]) <= {at.port for at, _ in proxy.brokers.values()}
    assert told["ports"]
    assert not set(told["ports"]) & set(embedded.ports.values())
    counters = proxy.counters_of(leader)
    assert counters.requests["produce"] >= 1
    assert counters.requests["fetch"] >= 1
    assert proxy.counters.rewritten["metadata"] >= 1
