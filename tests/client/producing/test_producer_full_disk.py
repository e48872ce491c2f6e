"""A disk that is full under the spool: what cannot be parked says so, the rest is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from reading_back import new_topic, values_by_key

from lossless.client.errors import Kind, SpoolFull
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
from lossless.client.producing.spool import Spool
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable
from small_disk import SmallDisk, mounted
from topics import read_all

IMPATIENT = {
    "delivery.timeout.ms": 600,
    "socket.timeout.ms": 500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "linger.ms": 0,
}
NOBODY = {"bootstrap.servers": "127.0.0.1:1", **IMPATIENT}
DISK = "4m"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with mounted(tmp_path / "disk", DISK) as disk:
        yield disk


def send(producer: Producer, topic: str, numbers: range) -> list[Delivery]:
    """More than the last block of a file has room for."""
    return [producer.send(topic, b"%d" % n + bytes(5_000), key=b"k") for n in numbers]


def found(kafka: PlannedCluster, topic: str) -> list[int]:
    values = values_by_key(read_all(kafka.bootstrap_servers, topic)).get(b"k", [])
    return [int((value or b"").rstrip(b"\0")) for value in values]


def test_what_does_not_fit_the_disk_fails_and_what_was_parked_before_is_sent_again(
    kafka: PlannedCluster, topic: str, small_disk: SmallDisk
) -> None:
    with Producer(NOBODY, giving_up=Park(small_disk.place), audit=False) as producer:
        before = send(producer, topic, range(10))
        producer.flush()
        small_disk.fill()
        refused = send(producer, topic, range(10, 20))
        with pytest.raises(SpoolFull, match="10 records were not delivered") as raised:
            producer.flush()
        assert f"{topic}, key 'k'" in str(raised.value)
        assert f"could not be parked in {small_disk.place}" in str(raised.value)
        assert "full" in str(raised.value.__cause__)
        assert (raised.value.kind, raised.value.hint) == (
            Kind.RETRIABLE,
            "look whether the disk is full",
        )
        for delivery in refused:
            assert not delivery.parked
            with pytest.raises(SpoolFull, match="could not be parked"):
                delivery.result(0)
        assert (producer.metrics.parked, producer.metrics.failed) == (10, 10)
        small_disk.make_room()
        after = send(producer, topic, range(20, 30))
        producer.flush()
        assert all(delivery.parked for delivery in before + after)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT}
    with Producer(settings, giving_up=Park(small_disk.place), audit=False) as producer:
        assert producer.metrics.parked == 20
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=60)
    assert found(kafka, topic) == [*range(10), *range(20, 30)]


def test_close_on_a_full_disk_says_what_was_not_delivered(small_disk: SmallDisk) -> None:
    slow = {**NOBODY, "delivery.timeout.ms": 300_000}
    producer = Producer(slow, giving_up=Park(small_disk.place), audit=False)
    send(producer, "orders", range(10))
    small_disk.fill()
    with pytest.raises(SpoolFull, match="10 records were not delivered: orders, key 'k'"):
        producer.close(0.1)


def test_a_start_on_a_full_disk_says_so_and_leaves_what_is_parked(
    kafka: PlannedCluster, topic: str, small_disk: SmallDisk
) -> None:
    with Producer(NOBODY, giving_up=Park(small_disk.place), audit=False) as producer:
        send(producer, topic, range(10))
    small_disk.fill()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT}
    with pytest.raises(Unavailable, match="cannot be opened for writing") as raised:
        Producer(settings, giving_up=Park(small_disk.place), audit=False)
    assert "what is parked there stays there" in (raised.value.hint or "")
    small_disk.make_room()
    with Producer(settings, giving_up=Park(small_disk.place), audit=False) as producer:
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=60)
    assert found(kafka, topic) == [*range(10)]


def test_a_parked_record_that_is_refused_on_a_full_disk_is_set_aside_once_there_is_room(
    kafka: PlannedCluster, small_disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka.bootstrap_servers, max_message_bytes="6000")
    with Producer(NOBODY, giving_up=Park(small_disk.place), audit=False) as producer:
        producer.send(topic, bytes(9_000), key=b"too large")
        producer.flush()
        send(producer, topic, range(1))
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT}
    with Producer(settings, giving_up=Park(small_disk.place), audit=False) as producer:
        small_disk.fill()
        assert wait_until(lambda: "which cannot be noted" in caplog.text, timeout_s=60)
        small_disk.make_room()
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=60)
    assert found(kafka, topic) == [0]
    spool = Spool(small_disk.place, bytes_max=1 << 20)
    assert spool.refused == 1
    spool.close()


def test_what_is_acknowledged_while_the_disk_is_full_is_neither_lost_nor_sent_twice(
    kafka: PlannedCluster,
    topic: str,
    small_disk: SmallDisk,
    outage: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Taking a record out of the spool needs room too."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT}
    with Producer(settings, giving_up=Park(small_disk.place), audit=False) as producer:
        sent = send(producer, topic, range(10))
        producer.flush()
        assert all(delivery.parked for delivery in sent)
        small_disk.fill()
        outage()
        assert [delivery.result(60).topic for delivery in sent] == [topic] * 10
        assert wait_until(lambda: "stay parked" in caplog.text, timeout_s=60)
        assert producer.metrics.parked == 10
        behind = producer.send(topic, b"10", key=b"k")  # of a key that is still there
        with pytest.raises(SpoolFull):
            behind.result(60)
        small_disk.make_room()
        assert wait_until(lambda: producer.metrics.parked == 0, timeout_s=60)
        send(producer, topic, range(11, 12))
    assert found(kafka, topic) == [*range(10), 11]
    assert caplog.text.count("stay parked") == 1  # not at every look


def test_what_fits_an_almost_full_disk_is_parked(small_disk: SmallDisk) -> None:
    with Producer(NOBODY, giving_up=Park(small_disk.place), audit=False) as producer:
        deliveries = send(producer, "orders", range(3_000))
        with pytest.raises(SpoolFull, match="records were not delivered"):
            producer.flush(60)
        parked = [delivery for delivery in deliveries if delivery.parked]
        assert len(parked) * 5_000 > 2_000_000  # more than half of the disk, a log beside it
        assert all(isinstance(d.error, SpoolFull) for d in deliveries if not d.parked)
    spool = Spool(small_disk.place, bytes_max=1 << 30)
    assert spool.count == len(parked)
    spool.close()
