"""What `send` promises: every record is acknowledged, or somebody is told why not."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from aiokafka.partitioner import murmur2
from confluent_kafka import Message
from confluent_kafka.serialization import MessageField, SerializationContext, StringSerializer
from reading_back import values_by_key

from lossless.client import headers as names
from lossless.client.errors import (
    BufferFull,
    ClientFailed,
    NotDelivered,
    Refused,
    SerializationFailed,
)
from lossless.client.producing.delivery import Delivery
from lossless.client.producing.producer import Producer
from lossless.client.record import header
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput
from topics import read_all

NOBODY = "127.0.0.1:1"  # where nothing listens


def hopeless(**settings: object) -> Producer:
    """A producer whose records are given up soon."""
    return Producer(
        {"bootstrap.servers": NOBODY, "delivery.timeout.ms": 200, "linger.ms": 0, **settings},
        audit=False,
    )


def test_a_delivery_says_where_the_record_is(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        found = producer.send(topic, "first", key="42", timestamp_ms=1_700_000_000_000).result(30)
        (message,) = read_all(kafka.bootstrap_servers, topic)
    assert found == (topic, message.partition(), 0, 1_700_000_000_000)
    assert (message.key(), message.value()) == (b"42", b"first")


def test_records_say_where_they_come_from(kafka: PlannedCluster, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with Producer(settings, application="shop") as producer:
        for number in range(3):
            producer.send(topic, b"v", key=b"k", headers={"of": "mine"}, event_time_ms=number)
        producer.send(topic, b"v", key=b"k", operation_id="given")
        producer.send(topic, b"v", key=b"k", headers={names.OPERATION_ID: "forwarded"})
    found = [message.headers() for message in read_all(kafka.bootstrap_servers, topic)]
    assert {header(each, names.APPLICATION) for each in found} == {b"shop"}
    assert {header(each, names.HOST) for each in found} == {socket.gethostname().encode()}
    assert [header(each, names.EVENT_TIME) for each in found] == [b"0", b"1", b"2", None, None]
    assert [header(each, "of") for each in found] == [b"mine"] * 3 + [None] * 2
    ids = [header(each, names.OPERATION_ID) for each in found]
    assert ids[3:] == [b"given", b"forwarded"]
    assert len(set(ids)) == 5


def test_keys_land_where_java_puts_them(kafka: PlannedCluster, topic: str) -> None:
    keys = [f"customer-{number}".encode() for number in range(50)]
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        found = [producer.send(topic, b"v", key=key).result(30).partition for key in keys]
    assert found == [(murmur2(key) & 0x7FFFFFFF) % 3 for key in keys]


def test_a_delivery_can_be_awaited_from_any_loop(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:

        async def send_some() -> list[Any]:
            return await asyncio.gather(*(_awaited(producer.send(topic, b"v")) for _ in range(20)))

        assert len(asyncio.run(send_some())) == 20
        done = producer.send(topic, b"v")
        producer.flush()
        assert asyncio.run(_awaited(done)).topic == topic
    with hopeless() as producer, pytest.raises(NotDelivered):
        asyncio.run(_awaited(producer.send(topic, b"v")))


async def _awaited(delivery: Delivery) -> Any:
    return await delivery


def test_callbacks_are_called_once_by_the_serving_thread(kafka: PlannedCluster, topic: str) -> None:
    called: list[tuple[Delivery, str]] = []

    def note(delivery: Delivery) -> None:
        called.append((delivery, threading.current_thread().name))

    with Producer({"bootstrap.servers": kafka.bootstrap_servers}, application="x") as producer:
        sent = [producer.send(topic, b"v", on_delivery=note) for _ in range(500)]
        producer.flush()
        assert {id(delivery) for delivery, _ in called} == {id(delivery) for delivery in sent}
        assert len(called) == 500
        assert {thread for _, thread in called} == {"lossless-producer-x"}
        sent[0].add_callback(note)  # it is done: at once, here
        assert called[-1] == (sent[0], threading.current_thread().name)


def test_a_callback_that_raises_hurts_nobody(
    kafka: PlannedCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def raise_it(_: Delivery) -> None:
        raise ZeroDivisionError

    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(topic, b"v", on_delivery=raise_it)
        producer.send(topic, b"v").result(30)
    assert "ZeroDivisionError" in caplog.text


# P7: three errors that are not the same


def test_what_cannot_be_written_as_bytes_is_not_sent() -> None:
    with hopeless() as producer:
        with pytest.raises(SerializationFailed, match="of type dict") as raised:
            producer.send("orders", {"number": 1})
        assert "serialize_value" in (raised.value.hint or "")

        with pytest.raises(SerializationFailed, match="the key is of type float"):
            producer.send("orders", b"", key=1.5)


def test_a_full_buffer_is_an_error_of_its_own() -> None:
    settings = {
        "bootstrap.servers": NOBODY,
        "queue.buffering.max.messages": 2,
        "delivery.timeout.ms": 60_000,
    }
    producer = Producer(settings, audit=False, buffer_wait_s=0.1)
    sent = [producer.send("orders", b"v") for _ in range(2)]
    with pytest.raises(BufferFull, match="2 records wait") as raised:
        producer.send("orders", b"v", key=b"42")
    assert raised.value.record is not None
    assert raised.value.record.key == b"42"
    with pytest.raises(NotDelivered):
        producer.close(0)
    assert all(isinstance(delivery.error, NotDelivered) for delivery in sent)


def test_exhausted_retries_give_the_record_back() -> None:
    with hopeless() as producer:
        delivery = producer.send("orders", b"v", key=b"42", headers={"a": b"b"})
        with pytest.raises(NotDelivered) as raised:
            delivery.result(30)
    record = raised.value.record
    assert record is not None
    assert (record.topic, record.key, record.value) == ("orders", b"42", b"v")
    assert header(record.headers, "a") == b"b"
    assert header(record.headers, names.OPERATION_ID)


def test_room_comes_back_when_the_cluster_takes_records(kafka: PlannedCluster, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "queue.buffering.max.messages": 10}
    with Producer(settings) as producer:
        for number in range(500):
            producer.send(topic, str(number), key=b"k")
    assert values_by_key(read_all(kafka.bootstrap_servers, topic)) == {
        b"k": [str(number).encode() for number in range(500)]
    }


def test_what_is_too_large_is_refused_at_once() -> None:
    with hopeless() as producer, pytest.raises(Refused, match="too large") as raised:
        producer.send("orders", bytes(2_000_000))
    assert "max.message.bytes" in (raised.value.hint or "")


def test_what_is_refused_at_once_leaves_nothing_in_flight() -> None:
    with Producer({"bootstrap.servers": NOBODY}, audit=False) as producer:
        for key in (b"k", None):
            with pytest.raises(Refused, match="too large"):
                producer.send("orders", bytes(2_000_000), key)
        producer.flush(30)


# Never silent


def test_flush_raises_what_nobody_looked_at() -> None:
    with hopeless() as producer:
        for number in range(5):
            producer.send("orders", b"v", key=f"k{number}")
        with pytest.raises(NotDelivered, match="5 records were not delivered") as raised:
            producer.flush()
        said = "orders, key 'k0'; orders, key 'k1'; orders, key 'k2'; and 2 more: "
        assert said in raised.value.what
        assert raised.value.what.count("no connection to a broker") == 1
        producer.flush()  # it was said


def test_many_failures_are_noted_without_looking_at_all_of_them_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full buffer that is given up has 100,000 of them, and closing must not take minutes."""
    monkeypatch.setattr("lossless.client.producing.deliveries.UNNOTICED_MAX", 100)
    looks = 0

    def is_looked_at(_: Delivery) -> bool:
        nonlocal looks
        looks += 1
        return False

    monkeypatch.setattr(Delivery, "is_looked_at", property(is_looked_at))
    with Producer({"bootstrap.servers": NOBODY}, audit=False) as producer:
        for number in range(2_000):
            delivery = producer._deliveries.new(number)
            producer._deliveries.failed(delivery, NotDelivered("gone"))
        assert looks < 3 * 2_000
        with pytest.raises(NotDelivered, match="2000 records were not delivered"):
            producer.flush(30)


def test_what_somebody_looked_at_is_not_raised_again() -> None:
    with hopeless() as producer:
        waited_for = producer.send("orders", b"v")
        with pytest.raises(NotDelivered):
            waited_for.result(30)
        failed: list[Delivery] = []
        producer.send("orders", b"v", on_delivery=failed.append)
        producer.flush()
        assert failed[0].done


def test_close_ends_by_its_deadline_and_says_what_was_not_delivered() -> None:
    producer = Producer({"bootstrap.servers": NOBODY, "delivery.timeout.ms": 300_000})
    for number in range(4):
        producer.send("orders", b"v", key=f"k{number}")
    with pytest.raises(NotDelivered, match="4 records were not delivered: orders, key 'k0'"):
        producer.close(0.2)
    with pytest.raises(ClientFailed, match="closed"):
        producer.send("orders", b"v")
    producer.close()  # once more does nothing


def test_flush_that_runs_out_of_time_gives_nothing_up() -> None:
    producer = Producer({"bootstrap.servers": NOBODY, "delivery.timeout.ms": 300_000})
    delivery = producer.send("orders", b"v")
    with pytest.raises(NotDelivered, match="1 records are still on their way"):
        producer.flush(0.1)
    with pytest.raises(NotDelivered, match="still on its way"):
        delivery.result(0)
    assert not delivery.done
    with pytest.raises(NotDelivered):
        producer.close(0)


def test_closing_does_not_hide_the_error_of_the_block(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ZeroDivisionError), hopeless() as producer:  # noqa: PT012
        producer.send("orders", b"v")
        raise ZeroDivisionError
    assert "was closed because of ZeroDivisionError" in caplog.text
    assert "orders, key none" in caplog.text


def test_a_forked_child_is_refused(kafka: PlannedCluster, topic: str) -> None:
    program = f"""
import os, warnings
warnings.simplefilter("ignore")  # of forking with threads, which is what this is about
from lossless.client.producing.producer import Producer
with Producer({{"bootstrap.servers": {kafka.bootstrap_servers!r}}}) as producer:
    producer.send({topic!r}, b"parent").result(30)
    child = os.fork()
    if not child:
        try:
            producer.send({topic!r}, b"child")
        except Exception as error:
            print(type(error).__name__, error, flush=True)
        os._exit(0)
    os.waitpid(child, 0)
    producer.send({topic!r}, b"parent").result(30)
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout.startswith("ClientFailed this producer was made by the parent")
    assert [m.value() for m in read_all(kafka.bootstrap_servers, topic)] == [b"parent"] * 2


def test_ctrl_c_ends_a_program_that_waits_for_a_dead_cluster() -> None:
    program = f"""
import os, signal, threading
from lossless.client.producing.producer import Producer
with Producer({{"bootstrap.servers": "{NOBODY}"}}) as producer:
    producer.send("orders", b"v")
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    producer.flush()
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert "KeyboardInterrupt" in ended.stderr
    assert "orders, key none" in ended.stderr  # what was not delivered is said all the same


def test_an_answer_that_ctrl_c_took_away_is_a_failure(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:
        producer.send(topic, b"v").result(30)
        # What remains when the interrupt comes between librdkafka and us: librdkafka has nothing
        # left to say, and a record is outstanding.
        lost = producer._deliveries.new(next(producer._numbers))
        producer._outstanding[lost.number] = lost
        producer._interrupted = True
        with pytest.raises(NotDelivered, match="may be written or not"):
            producer.flush(30)
        assert lost.done


def test_an_answer_that_a_signal_handler_interrupts_leaves_nothing_in_flight(
    kafka: PlannedCluster, topic: str
) -> None:
    """A handler of SIGTERM may call sys.exit() at any step of `send`."""

    sent: list[Delivery] = []

    class Interrupted(list[Message]):
        def append(self, message: Message) -> None:
            if threading.current_thread() is threading.main_thread():
                raise SystemExit
            super().append(message)

    settings = {"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 0}
    with Producer(settings, audit=False) as producer:

        def send_until_interrupted() -> None:
            while True:
                producer._deliveries.acknowledged = Interrupted()
                sent.append(producer.send(topic, b"v", b"k"))

        with pytest.raises(SystemExit):
            send_until_interrupted()
        producer.flush(30)
        assert all(delivery.done for delivery in sent)


# P2


def test_a_leader_that_dies_costs_nothing(kafka: PlannedCluster, topic: str) -> None:
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    sent: list[Delivery] = []
    with Producer(settings) as producer:
        for number in range(3_000):
            if number == 1_000:
                producer.flush()
                kafka.kill(kafka.leader_of(topic, 0))
            sent.append(producer.send(topic, str(number), key=str(number % 10)))
    assert all(delivery.error is None and delivery.done for delivery in sent)
    assert values_by_key(read_all(kafka.bootstrap_servers, topic)) == {
        str(key).encode(): [str(number).encode() for number in range(key, 3_000, 10)]
        for key in range(10)
    }
    places = {(found.partition, found.offset) for found in (d.result() for d in sent)}
    assert len(places) == 3_000


# Plain and typed


def test_serializers_of_confluent_kafka_work(kafka: PlannedCluster, topic: str) -> None:
    def to_json(value: object, context: SerializationContext | None) -> bytes:
        assert context is not None
        assert (context.topic, context.field) == (topic, MessageField.VALUE)
        context.headers.append(("content-type", b"json"))
        return json.dumps(value).encode()

    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with Producer(
        settings, serialize_key=StringSerializer("utf_8"), serialize_value=to_json
    ) as producer:
        producer.send(topic, {"a": 1}, key="é").result(30)
        with pytest.raises(SerializationFailed, match="not JSON serializable") as raised:
            producer.send(topic, {1, 2})
    assert isinstance(raised.value.__cause__, TypeError)
    (message,) = read_all(kafka.bootstrap_servers, topic)
    assert (message.key(), message.value()) == ("é".encode(), b'{"a": 1}')
    assert header(message.headers(), "content-type") == b"json"


def test_threads_share_a_producer(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}) as producer:

        def send_some(key: int) -> None:
            for number in range(1_000):
                producer.send(topic, str(number), key=str(key))

        threads = [threading.Thread(target=send_some, args=(key,)) for key in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert values_by_key(read_all(kafka.bootstrap_servers, topic)) == {
        str(key).encode(): [str(number).encode() for number in range(1_000)] for key in range(4)
    }


def test_metrics_tell_what_happened(kafka: PlannedCluster, topic: str) -> None:
    with Producer({"bootstrap.servers": kafka.bootstrap_servers}, application="m") as producer:
        for _ in range(100):
            producer.send(topic, b"v")
    assert producer.metrics.acknowledged == 100
    with hopeless() as producer:
        producer.send(topic, b"v").add_callback(lambda _: None)
    assert producer.metrics.failed == 1


def test_a_producer_is_made_from_a_contract(
    kafka: PlannedCluster, topic: str, tmp_path: Path
) -> None:
    (tmp_path / "lossless.toml").write_text(
        f"""
[guarantee]
pause_max_s = 60
[cluster.client]
"bootstrap.servers" = "{kafka.bootstrap_servers}"
[producers.shop.config]
"client.id" = "till"
"""
    )
    with Producer.from_contract("shop", tmp_path) as producer:
        assert producer.application == "shop"
        assert producer.send(topic, b"v").result(30).topic == topic
    with pytest.raises(BadInput, match="there is no producer 'shoop'"):
        Producer.from_contract("shoop", tmp_path)


def test_contradictions_are_refused() -> None:
    with pytest.raises(BadInput, match="idempotence"):
        Producer({"bootstrap.servers": NOBODY, "acks": 1, "enable.idempotence": True})
    with pytest.raises(BadInput, match=r"bootstrap\.servers"):
        Producer({})
    with pytest.raises(BadInput, match="no such settings"):
        Producer({"bootstrap.servers": NOBODY, "linger.mss": 5})


def test_librdkafkas_lines_go_to_the_standard_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with hopeless() as producer, pytest.raises(NotDelivered):
        producer.send("orders", b"v").result(30)
    assert any("Connect to" in line.message for line in caplog.records)
