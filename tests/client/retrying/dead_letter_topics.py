"""Topics with dead letters in them, on a real cluster, and what comes back from them."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from failed_records import failure, message

from lossless.client.retrying import DeadLetters, Forward
from topics import read_all

Headers = list[tuple[str, bytes | None]]


def failed(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    error: BaseException | None = None,
    key: bytes | None = b"k",
    value: bytes | None = None,
    headers: Headers | None = None,
) -> tuple[bytes | None, bytes | None, Headers]:
    """A letter as the consumer writes it: key, value and headers."""
    record = message(
        topic,
        partition=partition,
        offset=offset,
        key=key,
        value=value or b"value %d" % offset,
        headers=headers or [("lossless-operation-id", b"id-%d" % offset)],
    )
    decision = DeadLetters().decide(failure(record, error))
    assert isinstance(decision, Forward)
    return key, record.value(), list(decision.headers)


def write_letters(
    bootstrap_servers: str,
    topic: str,
    letters: Iterable[tuple[bytes | None, bytes | None, Headers]],
    *,
    partition: int = 0,
    transactional_id: str | None = None,
) -> None:
    settings: dict[str, object] = {"bootstrap.servers": bootstrap_servers}
    if transactional_id is not None:
        settings["transactional.id"] = transactional_id
    producer = Producer(settings)
    if transactional_id is not None:
        producer.init_transactions()
        producer.begin_transaction()
    for key, value, headers in letters:
        producer.produce(topic, value, key, partition=partition, headers=headers)  # type: ignore[arg-type]
    if transactional_id is not None:
        producer.commit_transaction()
    assert producer.flush(30) == 0


def values(bootstrap_servers: str, topic: str) -> list[bytes | str | None]:
    return [each.value() for each in read_all(bootstrap_servers, topic)]


def delete_before(bootstrap_servers: str, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()
