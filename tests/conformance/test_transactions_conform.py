"""Transactions as both engines do them. tests/broker/transactions has much more on ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, Producer, TopicPartition
from subject import TIMEOUT_S, Subject, take

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from one_request import ask, error_of


def begun(kafka: Subject, name: str) -> Producer:
    producer = kafka.producer(transactional_id=name, transaction_timeout_ms=10_000)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    return producer


def test_committed_records_are_read_aborted_ones_only_by_who_wants_them(kafka: Subject) -> None:
    topic = kafka.topic(2)
    producer = begun(kafka, kafka.name())
    for partition in range(2):
        producer.produce(topic, f"committed {partition}", partition=partition)
    producer.commit_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(topic, "aborted", partition=0)
    producer.flush(TIMEOUT_S)
    producer.abort_transaction(TIMEOUT_S)
    committed = ["committed 0", "committed 1"]

    def read(isolation: str) -> list[str]:
        return sorted(kafka.values(topic, 2, isolation_level=isolation))

    # The coordinator has decided; its markers are on their way.
    assert wait_until(lambda: read("read_committed") == committed, timeout_s=TIMEOUT_S)
    assert read("read_uncommitted") == ["aborted", *committed]
    *_, marker = kafka.stored(topic)
    assert marker.is_control


def test_an_open_transaction_holds_up_those_who_read_what_is_committed(kafka: Subject) -> None:
    topic = kafka.topic()
    producer = begun(kafka, kafka.name())
    producer.produce(topic, "open")
    producer.flush(TIMEOUT_S)
    kafka.send(topic, "plain")
    assert kafka.values(topic, isolation_level="read_committed") == []
    assert kafka.values(topic, isolation_level="read_uncommitted") == ["open", "plain"]
    said = kafka.fetch(topic, 0, 0, isolation_level=1)
    assert (said.high_watermark, said.last_stable_offset) == (2, 0)
    producer.commit_transaction(TIMEOUT_S)
    assert wait_until(
        lambda: kafka.values(topic, isolation_level="read_committed") == ["open", "plain"],
        timeout_s=TIMEOUT_S,
    )


def test_a_second_producer_of_the_name_fences_the_first(kafka: Subject) -> None:
    topic, name = kafka.topic(), kafka.name()
    first = begun(kafka, name)
    first.produce(topic, "first")
    first.flush(TIMEOUT_S)
    second = begun(kafka, name)
    second.produce(topic, "second")
    second.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(TIMEOUT_S)
    error = fenced.value.args[0]
    assert error.fatal()
    assert error.code() in (Error.PRODUCER_FENCED, Error.INVALID_PRODUCER_EPOCH, -144)
    assert wait_until(
        lambda: kafka.values(topic, isolation_level="read_committed") == ["second"],
        timeout_s=TIMEOUT_S,
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_offsets_are_committed_with_the_records_or_not_at_all(
    kafka: Subject, protocol: str
) -> None:
    source, target, group = kafka.topic(), kafka.topic(), kafka.name()
    kafka.send(source, "a", "b", "c", "d")
    producer = begun(kafka, kafka.name())
    settings = {"group_id": group, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    with kafka.consumer(**settings) as consumer:
        consumer.subscribe([source])
        take(consumer, 4)

        def transaction(offset: int) -> None:
            producer.produce(target, str(offset))
            moved = [TopicPartition(source, 0, offset)]
            producer.send_offsets_to_transaction(
                moved, consumer.consumer_group_metadata(), TIMEOUT_S
            )

        def committed() -> int:
            return consumer.committed([TopicPartition(source, 0)], TIMEOUT_S)[0].offset

        transaction(2)
        producer.commit_transaction(TIMEOUT_S)
        assert wait_until(lambda: committed() == 2, timeout_s=TIMEOUT_S)
        producer.begin_transaction()
        transaction(4)
        producer.abort_transaction(TIMEOUT_S)
        assert committed() == 2
    assert wait_until(
        lambda: kafka.values(target, isolation_level="read_committed") == ["2"],
        timeout_s=TIMEOUT_S,
    )


def test_transactions_are_listed_and_described(kafka: Subject) -> None:
    """Without a client in between: confluent-kafka does not ask for them."""
    topic, name = kafka.topic(), kafka.name()
    producer = begun(kafka, name)
    producer.produce(topic, "open")
    producer.flush(TIMEOUT_S)
    listed = {
        one.transactional_id: one.transaction_state
        for address in kafka.addresses()
        for one in ask(address, 66, 1, state_filters=["Ongoing"]).transaction_states
    }
    assert listed[name] == "Ongoing"
    described = [
        ask(address, 65, 0, transactional_ids=[name]).transaction_states[0]
        for address in kafka.addresses()
    ]
    (mine,) = [one for one in described if error_of(one) is Error.NONE]
    assert {error_of(one) for one in described} == {Error.NONE, Error.NOT_COORDINATOR}
    assert [(one.topic, one.partitions) for one in mine.topics] == [(topic, (0,))]
    topics = [{"name": topic, "partition_indexes": [0]}]
    said = ask(kafka.leader(topic), 61, 0, topics=topics).topics[0].partitions[0]
    (writing,) = said.active_producers
    assert (writing.producer_id, writing.current_txn_start_offset) == (mine.producer_id, 0)
    producer.abort_transaction(TIMEOUT_S)
