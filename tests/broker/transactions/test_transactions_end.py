"""What readers see of a transaction, by how it ends."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from transactional_clients import COMMITTED, TIMEOUT_S, UNCOMMITTED, Clients, send

from lossless.engines.waiting import wait_until

VALUES = [str(number) for number in range(9)]


def test_a_commit_shows_the_whole_transaction_and_nothing_shows_before(clients: Clients) -> None:
    topic = clients.topic()
    producer = clients.producer("whole")
    producer.begin_transaction()
    send(producer, topic, VALUES)
    assert clients.values(topic, COMMITTED) == []
    assert clients.values(topic, UNCOMMITTED) == VALUES
    producer.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == VALUES


def test_what_is_aborted_is_seen_by_readers_of_everything_only(clients: Clients) -> None:
    topic = clients.topic()
    producer = clients.producer("aborts")
    producer.begin_transaction()
    send(producer, topic, ["aborted"] * 6)
    producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, topic, VALUES)
    producer.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == VALUES
    assert clients.values(topic, UNCOMMITTED) == VALUES + ["aborted"] * 6


def test_a_producer_commits_many_transactions_one_after_the_other(clients: Clients) -> None:
    topic = clients.topic()
    producer = clients.producer("many")
    expected = []
    for number in range(20):
        producer.begin_transaction()
        values = [f"{number:02}-{at}" for at in range(3)]
        send(producer, topic, values)
        if number % 3:
            producer.commit_transaction(TIMEOUT_S)
            expected += values
        else:
            producer.abort_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == expected


def test_an_open_transaction_bounds_the_last_stable_offset_for_everybody(clients: Clients) -> None:
    topic = clients.topic(1)
    plain = clients.plain()
    send(plain, topic, ["a", "b"], partitions=1)
    producer = clients.producer("open")
    producer.begin_transaction()
    send(producer, topic, ["c"], partitions=1)
    send(plain, topic, ["d"], partitions=1)
    assert clients.end(topic, 0, COMMITTED) == 2
    assert clients.end(topic, 0, UNCOMMITTED) == 4
    assert clients.values(topic, COMMITTED, [0]) == ["a", "b"]
    producer.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic, [0])
    assert clients.end(topic, 0, COMMITTED) == 5  # with the marker
    assert clients.values(topic, COMMITTED, [0]) == ["a", "b", "c", "d"]


def test_two_transactions_of_two_producers_end_each_in_its_own_way(clients: Clients) -> None:
    topic = clients.topic()
    first, second = clients.producer("first"), clients.producer("second")
    first.begin_transaction()
    second.begin_transaction()
    send(first, topic, ["first"] * 3)
    send(second, topic, ["second"] * 3)
    send(first, topic, ["first"] * 3)
    first.abort_transaction(TIMEOUT_S)
    assert clients.values(topic, COMMITTED) == []  # the second is still open
    second.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == ["second"] * 3


def test_who_takes_the_name_fences_who_had_it_and_aborts_its_work(clients: Clients) -> None:
    topic = clients.topic()
    first = clients.producer("name")
    first.begin_transaction()
    send(first, topic, ["first"] * 3)
    second = clients.producer("name")
    with pytest.raises(KafkaException) as refused:
        first.commit_transaction(TIMEOUT_S)
    error = refused.value.args[0]
    assert error.fatal()
    assert error.code() == KafkaError._FENCED
    second.begin_transaction()
    send(second, topic, ["second"] * 3)
    second.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == ["second"] * 3


def test_a_producer_that_is_fenced_cannot_write_any_more(clients: Clients) -> None:
    topic = clients.topic(1)
    first = clients.producer("replaced")
    second = clients.producer("replaced")
    first.begin_transaction()
    first.produce(topic, b"late")
    with pytest.raises(KafkaException) as refused:
        first.flush(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError._FENCED
    second.begin_transaction()
    send(second, topic, ["second"], partitions=1)
    second.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic, [0])
    assert clients.values(topic, UNCOMMITTED, [0]) == ["second"]


def test_a_transaction_that_takes_too_long_is_aborted(clients: Clients) -> None:
    topic = clients.topic()
    producer = clients.producer("slow", transaction_timeout_ms=1000)
    producer.begin_transaction()
    send(producer, topic, VALUES)
    assert not clients.is_stable(topic)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == []
    assert clients.values(topic, UNCOMMITTED) == VALUES
    with pytest.raises(KafkaException) as refused:
        producer.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    again = clients.producer("slow")
    again.begin_transaction()
    send(again, topic, ["again"] * 3)
    again.commit_transaction(TIMEOUT_S)
    assert clients.becomes_stable(topic)
    assert clients.values(topic, COMMITTED) == ["again"] * 3


def test_a_transaction_timeout_above_what_the_broker_allows_is_refused(clients: Clients) -> None:
    producer = clients.uninitialised("patient", transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(TIMEOUT_S)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


def test_group_offsets_move_with_the_commit_and_not_with_the_abort(clients: Clients) -> None:
    source, target = clients.topic(1), clients.topic()
    send(clients.plain(), source, VALUES, partitions=1)
    group = f"group-of-{source}"
    producer = clients.producer("copies")
    metadata = clients.nobody_of(group)

    def copy(upto: int) -> None:
        producer.begin_transaction()
        send(producer, target, [f"upto-{upto}"] * 3)
        position = TopicPartition(source, 0, upto)
        producer.send_offsets_to_transaction([position], metadata, TIMEOUT_S)

    copy(4)
    producer.commit_transaction(TIMEOUT_S)
    assert wait_until(lambda: clients.group_offset(group, source, 0) == 4, timeout_s=TIMEOUT_S)
    copy(7)
    producer.abort_transaction(TIMEOUT_S)
    assert clients.becomes_stable(target)
    assert clients.group_offset(group, source, 0) == 4
    copy(9)
    producer.commit_transaction(TIMEOUT_S)
    assert wait_until(lambda: clients.group_offset(group, source, 0) == 9, timeout_s=TIMEOUT_S)
    assert clients.becomes_stable(target)
    assert clients.values(target, COMMITTED) == ["upto-4"] * 3 + ["upto-9"] * 3
