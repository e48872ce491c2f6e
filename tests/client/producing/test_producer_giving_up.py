"""P3: giving up is a decision, and none of them is silent."""

from __future__ import annotations

import pytest
from reading_back import new_topic

from lossless.client import headers as names
from lossless.client.errors import ClientError, NotDelivered, Refused
from lossless.client.producing.giving_up import Callback, DeadLetter, Drop, GivingUp, Raise
from lossless.client.producing.producer import Producer
from lossless.client.record import Record, header
from lossless.engines.local.planned import PlannedCluster
from lossless.errors import BadInput
from topics import read_all, wait_until_known

NOBODY = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 200, "linger.ms": 0}


def hopeless(policy: GivingUp) -> Producer:
    return Producer(NOBODY, giving_up=policy, audit=False)


@pytest.mark.parametrize("policy", ["park", Drop])
def test_what_is_not_a_decision_is_refused(policy: GivingUp) -> None:
    with pytest.raises(BadInput, match="is not a decision about records that are given up"):
        hopeless(policy)


def test_raise_fails_the_delivery_and_close_says_so() -> None:
    producer = hopeless(Raise())
    producer.send("orders", b"v")
    with pytest.raises(NotDelivered, match="orders, key none"):
        producer.close()


def test_callback_is_told_of_each_record() -> None:
    told: list[tuple[Record, ClientError]] = []
    with hopeless(Callback(lambda record, error: told.append((record, error)))) as producer:
        sent = [producer.send("orders", str(number)) for number in range(3)]
    assert sorted(record.value or b"" for record, _ in told) == [b"0", b"1", b"2"]
    assert {type(error) for _, error in told} == {NotDelivered}
    assert all(isinstance(delivery.error, NotDelivered) for delivery in sent)


def test_a_callback_that_raises_leaves_the_failure_to_close(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def raise_it(_record: Record, _error: ClientError) -> None:
        raise ZeroDivisionError

    producer = hopeless(Callback(raise_it))
    producer.send("orders", b"v")
    with pytest.raises(NotDelivered):
        producer.close()
    assert "ZeroDivisionError" in caplog.text


def test_drop_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    with hopeless(Drop()) as producer:
        delivery = producer.send("orders", b"v", key=b"42")
    assert producer.metrics.dropped == 1
    assert "dropped: orders, key '42'" in caplog.text
    with pytest.raises(NotDelivered):
        delivery.result()


def test_a_dead_letter_says_where_it_was_to_go_and_why_not(kafka: PlannedCluster) -> None:
    topic = new_topic(kafka.bootstrap_servers, max_message_bytes="1000")
    letters = new_topic(kafka.bootstrap_servers)
    settings = {"bootstrap.servers": kafka.bootstrap_servers}
    with Producer(settings, giving_up=DeadLetter(letters)) as producer:
        good = producer.send(topic, b"small", key=b"a")
        good.result(30)  # brokers refuse a batch as a whole
        bad = producer.send(topic, bytes(5_000), key=b"b", operation_id="op", partition=1)
        producer.flush()
        assert good.result().topic == topic
        assert bad.result().topic == letters
        assert isinstance(bad.error, Refused)
        assert producer.metrics.dead_lettered == 1
    assert len(read_all(kafka.bootstrap_servers, topic)) == 1
    (letter,) = read_all(kafka.bootstrap_servers, letters)
    assert (letter.key(), letter.value()) == (b"b", bytes(5_000))
    told = letter.headers()
    assert header(told, names.ORIGINAL_TOPIC) == topic.encode()
    assert header(told, names.ORIGINAL_PARTITION) == (1).to_bytes(4, "big")
    assert header(told, names.OPERATION_ID) == b"op"
    assert header(told, names.EXCEPTION_FQCN) == b"lossless.client.errors.Refused"
    assert b"too large" in (header(told, names.EXCEPTION_MESSAGE) or b"")


def test_without_a_dead_letter_topic_the_delivery_fails(
    kafka: PlannedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = new_topic(kafka.bootstrap_servers, partitions=1, max_message_bytes="1000")
    wait_until_known(kafka.bootstrap_servers, topic, partitions=1)
    settings = {
        "bootstrap.servers": kafka.bootstrap_servers,
        "topic.metadata.propagation.max.ms": 0,
    }
    producer = Producer(settings, giving_up=DeadLetter())  # <topic>-dlt is not there
    producer.send(topic, bytes(5_000))
    with pytest.raises(Refused, match="too large"):
        producer.close()
    assert "no dead letter either" in caplog.text


def test_a_record_too_large_for_the_client_goes_by_the_policy_too() -> None:
    told: list[Record] = []
    with hopeless(Callback(lambda record, _: told.append(record))) as producer:
        delivery = producer.send("orders", bytes(2_000_000))
        assert isinstance(delivery.error, Refused)
    assert len(told) == 1


def test_a_transaction_is_aborted_rather_than_given_up_in_part() -> None:
    with pytest.raises(BadInput, match="Drop"):
        Producer({**NOBODY, "transactional.id": "t"}, giving_up=Drop())
