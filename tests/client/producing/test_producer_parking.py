"""Park: nothing that was parked is lost, and nothing of the same key overtakes it."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from reading_back import new_topic, once, values_by_key

from lossless.client import headers as names
from lossless.client.errors import NotDelivered, Refused, SpoolFull
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
from lossless.client.producing.spool import FILE_NAME, Spool
from lossless.client.record import header
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.waiting import wait_until
from lossless.errors import Unavailable
from topics import read_all

IMPATIENT = {
    "delivery.timeout.ms": 600,
    "socket.timeout.ms": 500,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "linger.ms": 0,
}
NOBODY = {"bootstrap.servers": "127.0.0.1:1", **IMPATIENT}
# Where records are counted: who is impatient on a busy machine sends again what is on its way.
PATIENT = {"delivery.timeout.ms": 60_000, "socket.timeout.ms": 30_000}


def parking(kafka: PlannedCluster, folder: Path, **more: object) -> Producer:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT, **more}
    return Producer(settings, giving_up=Park(folder))


def in_order(numbers: range, keys: int) -> dict[bytes | None, list[bytes | None]]:
    return {
        str(key).encode(): [str(n).encode() for n in numbers if n % keys == key]
        for key in range(keys)
    }


def drained(producer: Producer) -> bool:
    return wait_until(lambda: producer.metrics.parked == 0, timeout_s=60)


def test_after_an_outage_everything_is_there_in_order(
    kafka: PlannedCluster, topic: str, tmp_path: Path, outage: Callable[[], None]
) -> None:
    with parking(kafka, tmp_path) as producer:
        sent = [producer.send(topic, str(n), key=str(n % 7)) for n in range(300)]
        producer.flush()
        assert {delivery.parked for delivery in sent} == {True}
        assert not any(delivery.done for delivery in sent)
        # Behind those that are parked, and parked at once.
        sent += [producer.send(topic, str(n), key=str(n % 7)) for n in range(300, 600)]
        producer.flush()
        assert producer.metrics.parked == 600
        outage()
        assert drained(producer)
        sent += [producer.send(topic, str(n), key=str(n % 7)) for n in range(600, 700)]
    assert {delivery.result(0).topic for delivery in sent} == {topic}
    found = once(read_all(kafka.bootstrap_servers, topic))
    assert values_by_key(found) == in_order(range(700), 7)


def test_an_outage_in_the_middle_of_sending(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with parking(kafka, tmp_path) as producer:
        for number in range(4_000):
            if number == 1_000:
                for node in kafka.plan.brokers:
                    kafka.pause(node.id)
            if number == 3_000:
                assert wait_until(lambda: producer.metrics.parked > 0, timeout_s=60)
                for node in kafka.plan.brokers:
                    kafka.resume(node.id)
            producer.send(topic, str(number), key=str(number % 50))
        producer.flush()
        assert drained(producer)
    found = once(read_all(kafka.bootstrap_servers, topic))
    assert values_by_key(found) == in_order(range(4_000), 50)


def test_a_start_that_is_soon_over_sends_what_was_parked_too(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with Producer(NOBODY, giving_up=Park(tmp_path), audit=False) as producer:
        for number in range(2_000):
            producer.send(topic, str(number), key=str(number % 2))
    with parking(kafka, tmp_path) as producer:
        pass
    assert producer.metrics.parked == 0
    found = once(read_all(kafka.bootstrap_servers, topic))
    assert values_by_key(found) == in_order(range(2_000), 2)


def test_the_next_start_sends_what_was_parked_first(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with Producer(NOBODY, giving_up=Park(tmp_path), audit=False) as producer:
        for number in range(20):
            producer.send(topic, str(number), key=str(number % 2), timestamp_ms=1_000 + number)
        producer.flush()
    with parking(kafka, tmp_path, **PATIENT) as producer:
        for number in range(20, 40):  # at once: behind what is parked
            producer.send(topic, str(number), key=str(number % 2), timestamp_ms=1_000 + number)
        assert drained(producer)
    found = read_all(kafka.bootstrap_servers, topic)
    assert values_by_key(found) == in_order(range(40), 2)
    assert sorted(message.timestamp()[1] for message in found) == list(range(1_000, 1_040))
    applications = {header(message.headers(), names.APPLICATION) for message in found}
    assert len(applications) == 1


def test_kill_9_of_a_producer_with_a_full_spool_loses_nothing(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    program = f"""
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
producer = Producer({NOBODY!r}, giving_up=Park({str(tmp_path)!r}), audit=False)
for number in range(500):
    producer.send({topic!r}, str(number), key=str(number % 5))
producer.flush()
print("parked", flush=True)
number = 500
while True:
    producer.send({topic!r}, str(number), key=str(number % 5))
    producer.flush()
    print(number, flush=True)
    number += 1
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "parked\n"
        for _ in range(20):
            last = process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        told = [int(line) for line in [last, *process.stdout]]
    with parking(kafka, tmp_path, **PATIENT) as producer:
        assert drained(producer)
    found = read_all(kafka.bootstrap_servers, topic)
    # What it said is parked is there; one more may have been parked before it could say so.
    assert len(found) - (told[-1] + 1) in (0, 1)
    assert values_by_key(found) == in_order(range(len(found)), 5)


def test_kill_9_while_the_spool_is_sent_repeats_only_with_the_same_operation_id(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with Producer(NOBODY, giving_up=Park(tmp_path), audit=False) as producer:
        for number in range(3_000):
            producer.send(topic, str(number), key=str(number % 5))
        producer.flush()
    settings = {"bootstrap.servers": kafka.bootstrap_servers, **IMPATIENT, **PATIENT}
    program = f"""
import os, signal
from lossless.client.producing.giving_up import Park
from lossless.client.producing.producer import Producer
producer = Producer({settings!r}, giving_up=Park({str(tmp_path)!r}))
while producer.metrics.parked > 2_000:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    with parking(kafka, tmp_path, **PATIENT) as producer:
        assert producer.metrics.parked > 0
        assert drained(producer)
    found = read_all(kafka.bootstrap_servers, topic)
    assert values_by_key(once(found)) == in_order(range(3_000), 5)
    assert len(found) <= 3_000 + 1_000  # what was on its way at most


def test_a_full_spool_refuses(tmp_path: Path) -> None:
    producer = Producer(NOBODY, giving_up=Park(tmp_path, bytes_max=3_000), audit=False)
    first = [producer.send("orders", bytes(1_000), key=b"k") for _ in range(4)]
    with pytest.raises(SpoolFull, match="no room to park it"):
        producer.flush()
    assert [delivery.parked for delivery in first] == [True, True, False, False]
    with pytest.raises(SpoolFull) as raised:
        producer.send("orders", bytes(1_000), key=b"k")
    assert raised.value.record is not None
    producer.send("orders", b"small", key=b"k")
    producer.close()
    spool = Spool(tmp_path, bytes_max=3_000)
    assert spool.count == 3
    spool.close()


def test_a_spool_is_of_one_producer_only(tmp_path: Path) -> None:
    with (
        Producer(NOBODY, giving_up=Park(tmp_path), audit=False),
        pytest.raises(Unavailable, match="another producer parks"),
    ):
        Producer(NOBODY, giving_up=Park(tmp_path), audit=False)


def test_what_is_refused_is_not_parked(kafka: PlannedCluster, tmp_path: Path) -> None:
    topic = new_topic(kafka.bootstrap_servers, max_message_bytes="1000")
    producer = parking(kafka, tmp_path, **{"delivery.timeout.ms": 30_000})
    refused = producer.send(topic, bytes(5_000))
    with pytest.raises(Refused, match="too large"):
        refused.result(30)
    producer.close()
    assert producer.metrics.parked == 0


def test_a_parked_record_that_is_refused_later_is_kept_aside(
    kafka: PlannedCluster, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka.bootstrap_servers, max_message_bytes="1000")
    with Producer(NOBODY, giving_up=Park(tmp_path), audit=False) as producer:
        producer.send(topic, bytes(5_000), key=b"k")
        producer.flush()
    with parking(kafka, tmp_path) as producer:
        assert drained(producer)
        producer.send(topic, b"small", key=b"k").result(30)
    assert "a parked record is refused" in caplog.text
    spool = Spool(tmp_path, bytes_max=1)
    assert (spool.count, spool.refused) == (0, 1)
    spool.close()


def test_a_damaged_row_is_kept_aside_and_holds_up_no_other(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with Producer(NOBODY, giving_up=Park(tmp_path)) as producer:
        for n in range(4):
            producer.send(topic, str(n), key="k")
        producer.close(0)
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database, database:
        (first, second), *_ = zip(
            *database.execute("SELECT place, place FROM parked ORDER BY place LIMIT 2"), strict=True
        )
        database.execute("UPDATE parked SET headers = x'0000' WHERE place = ?", (first,))
        database.execute(
            "UPDATE parked SET topic = CAST(x'FFFE' AS TEXT) WHERE place = ?", (second,)
        )
    with parking(kafka, tmp_path) as producer:
        assert drained(producer)
    assert [message.value() for message in read_all(kafka.bootstrap_servers, topic)] == [b"2", b"3"]
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as database:
        kept = database.execute("SELECT value, reason FROM refused ORDER BY place").fetchall()
    assert [value for value, _ in kept] == [b"0", b"1"]
    assert all("damaged on the disk" in reason for _, reason in kept)


def test_close_parks_what_is_not_acknowledged_by_then(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    slow = {**NOBODY, "delivery.timeout.ms": 300_000}
    producer = Producer(slow, giving_up=Park(tmp_path), audit=False)
    sent = [producer.send(topic, str(number), key=b"0") for number in range(10)]
    producer.close(0.1)  # raises nothing: they are safe
    assert all(delivery.parked for delivery in sent)
    with pytest.raises(NotDelivered, match="is parked"):
        sent[0].result(0)
    with parking(kafka, tmp_path, **PATIENT) as producer:
        assert drained(producer)
    assert values_by_key(read_all(kafka.bootstrap_servers, topic)) == in_order(range(10), 1)


def test_other_keys_need_not_wait_for_parked_ones(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    with Producer(NOBODY, giving_up=Park(tmp_path), audit=False) as producer:
        producer.send("not-there-yet", b"v", key=b"k")
        producer.flush()
    more = {"topic.metadata.propagation.max.ms": 60_000}
    with parking(kafka, tmp_path, **more) as producer:
        assert producer.send(topic, b"v", key=b"k").result(30).topic == topic
        assert producer.metrics.parked == 1
        producer.close(0.1)
    spool = Spool(tmp_path, bytes_max=1)
    assert spool.count == 1
    spool.close()


def test_close_ends_what_the_serving_thread_left_when_it_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer(NOBODY | {"delivery.timeout.ms": 300_000}, giving_up=Park(tmp_path))
    delivery = producer.send("orders", b"v", key=b"k")
    monkeypatch.setattr(producer._parking, "tend", lambda _now: 1 / 0)
    assert wait_until(lambda: producer._standing.fatal is not None, timeout_s=30)
    with pytest.raises(NotDelivered, match="ended before the record was acknowledged"):
        producer.close()
    assert delivery.done
    producer.close()  # does nothing
    Spool(tmp_path, bytes_max=1).close()  # nobody owns it any more
