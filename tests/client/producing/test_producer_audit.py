"""What was acknowledged is what the audit topic says."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from operator import add

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient
from reading_back import reports

from lossless.acknowledged import AUDIT_TOPIC
from lossless.client.errors import ClientFailed
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.producer import Producer
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.tally import Tally, record_hash
from topics import read_all


def test_reports_are_what_was_acknowledged(kafka: PlannedCluster, topic: str) -> None:
    minute_ms = 1_700_000_040_000
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}, application="shop") as producer:
        sent = [
            producer.send(topic, b"v", key=str(n), timestamp_ms=minute_ms + n % 3 * 60_000)
            for n in range(1_000)
        ]
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    described = admin.describe_topics(TopicCollection([topic]))[topic].result(30)
    topic_id = str(described.topic_id).replace("+", "-").replace("/", "_")
    expected: Counter[tuple[int, int]] = Counter()
    hashes: dict[tuple[int, int], Tally] = {}
    for found in (delivery.result() for delivery in sent):
        assert found.offset is not None
        series = (found.partition, found.timestamp_ms)
        expected[series] += 1
        one = Tally(1, record_hash(topic_id, found.partition, found.offset))
        hashes[series] = hashes.get(series, Tally()) + one
    told = reports(kafka.bootstrap_servers, topic)
    assert {(report.partition, report.start_ms): report.tally for report in told} == hashes
    assert {report.topic_id for report in told} == {topic_id}
    assert {report.producer.partition("@")[0] for report in told} == {"shop"}
    assert reduce(add, (report.tally for report in told), Tally()).count == 1_000


def test_no_audit_no_reports(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(topic, b"v")  # so that the audit topic is there
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}, audit=False) as producer:
        producer.send(topic, b"v")
    assert sum(report.tally.count for report in reports(kafka.bootstrap_servers, topic)) == 1
    assert read_all(kafka.bootstrap_servers, AUDIT_TOPIC)


@pytest.fixture
def _threads_change_often() -> Iterator[None]:
    """Between nearly any two steps, so that what is not one step shows."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual_s)


@pytest.mark.usefixtures("_threads_change_often")
def test_a_producer_closed_while_threads_send_counts_what_each_of_them_got_through(
    kafka: PlannedCluster, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.send(topic, b"v").result(30)  # before that, everything would wait for a connection
    sent: list[list[Delivery]] = [[] for _ in range(4)]
    refused: list[BaseException] = []

    def send_until_refused(deliveries: list[Delivery]) -> None:
        try:
            while True:
                deliveries.append(producer.send(topic, b"v", b"k"))
        except BaseException as error:
            refused.append(error)

    threads = [threading.Thread(target=send_until_refused, args=(each,)) for each in sent]
    for thread in threads:
        thread.start()
    assert wait_until(lambda: min(map(len, sent)) > 5_000, timeout_s=60)
    producer.close()
    for thread in threads:
        thread.join()
    assert [type(error) for error in refused] == [ClientFailed] * 4
    for each in sent:
        assert all(delivery.done and delivery.error is None for delivery in each)
    told = reports(kafka.bootstrap_servers, topic)
    (topic_id,) = {report.topic_id for report in told}
    there = [
        Tally(1, record_hash(topic_id, message.partition() or 0, message.offset() or 0))
        for message in read_all(kafka.bootstrap_servers, topic)
    ]
    assert len(there) == 1 + sum(map(len, sent)) == producer.metrics.acknowledged
    assert reduce(add, (report.tally for report in told), Tally()) == reduce(add, there, Tally())
