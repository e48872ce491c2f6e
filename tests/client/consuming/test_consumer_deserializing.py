"""Records that become what the application works with, and those that cannot."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka.serialization import SerializationContext
from consumed import PATIENCE_S, Kafka, eventually, running
from consumer_handlers import Amounts, amount_of

from lossless.client.consuming import Consumer
from lossless.client.consuming.deserializing import Deserializing
from lossless.client.errors import DeserializationFailed, HandlerFailed, StoreUnavailable
from lossless.client.producing import Producer
from lossless.client.retrying import Backoff, DeadLetters, InPlace, RetryTopics, read_letter
from lossless.client.stores import SqliteStore
from lossless.errors import BadInput
from topics import produce, read_all

GOOD = [b'{"amount": %d}' % amount for amount in range(4)]
BAD = b"not JSON"


def filled(kafka: Kafka, *values: bytes) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    produce(kafka.servers, kafka.topic, [(0, b"ann", value) for value in values])


def name_of(data: bytes | None, context: SerializationContext) -> tuple[str, str]:
    return (data or b"").decode(), context.field


def test_a_loop_is_given_what_the_deserialisers_make(kafka: Kafka) -> None:
    filled(kafka, *GOOD)
    seen = []
    with kafka.consumer(deserialize_key=name_of, deserialize_value=amount_of) as consumer:
        for message in consumer:
            seen.append(message.value())
            assert message.key() == ("ann", "key")
            assert (message.topic(), message.offset()) == (kafka.topic, len(seen) - 1)
            assert message.timestamp()[1] > 0
            if len(seen) == 2:
                break
        for batch in consumer.batches(2):
            seen += [message.value() for message in batch]
            if len(seen) == 5:
                consumer.stop()
    assert seen == [0, 1, 1, 2, 3]
    assert kafka.committed() == [4]


def test_a_loop_raises_for_what_cannot_be_deserialised_and_begins_with_it_again(
    kafka: Kafka,
) -> None:
    filled(kafka, GOOD[0], BAD)
    with kafka.consumer(deserialize_value=amount_of) as consumer:
        seen = []
        with pytest.raises(DeserializationFailed, match="@1: the value could not be deserialised"):
            seen.extend(message.value() for message in consumer)
        assert seen == [0]
        with pytest.raises(DeserializationFailed):
            next(iter(consumer))
    assert kafka.committed() == [1]


@pytest.mark.parametrize("retry", [DeadLetters(), InPlace(attempts=None), RetryTopics()])
def test_what_cannot_be_deserialised_becomes_a_dead_letter_byte_for_byte(
    kafka: Kafka, retry: Any
) -> None:
    filled(kafka, GOOD[0], BAD, GOOD[1])
    for topic in retry.retry_topics(kafka.topic):
        kafka.make_topic(topic=topic)
    seen: list[int] = []
    told: list[tuple[bytes | None, str]] = []
    consumer = kafka.consumer(
        retry=retry,
        workers=2,
        order="partition",
        deserialize_value=amount_of,
        on_dead_letter=lambda message, error: told.append((message.value(), str(error))),
    )
    with running(consumer, lambda message: seen.append(message.value())):
        eventually(lambda: len(seen) == 2)
    assert seen == [0, 1]
    (letter,) = map(read_letter, read_all(kafka.servers, f"{kafka.topic}-dlt"))
    assert letter.value == BAD
    assert letter.exception is not None
    assert letter.exception.endswith("DeserializationFailed")
    assert told == [(BAD, told[0][1])]
    assert "@1: the value could not be deserialised: JSONDecodeError" in told[0][1]
    assert kafka.committed() == [3]


class RegistryError(Exception):
    """Has what confluent-kafka's SchemaRegistryError has."""

    def __init__(self, http_status_code: int) -> None:
        self.http_status_code = http_status_code


class TransportError(Exception):
    """Is named like httpx's, which stands above its errors of connections and timeouts."""


class ReadError(TransportError):
    pass


OUTAGES = [
    ConnectionRefusedError("registry:8081"),
    TimeoutError("registry:8081"),
    ReadError("registry:8081"),
    RegistryError(503),
]


class Failing:
    """A deserialiser whose calls fail like this, in turn; None is a call that succeeds."""

    def __init__(self, *failures: Exception | None) -> None:
        self.failures = list(failures)

    def __call__(self, data: bytes | None, context: SerializationContext) -> int:
        if self.failures and (failure := self.failures.pop(0)):
            raise failure
        return amount_of(data, context)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_registry_that_does_not_answer_makes_no_dead_letters(kafka: Kafka, workers: int) -> None:
    filled(kafka, *GOOD)
    seen: list[int] = []
    each_before_a_success = [failure for outage in OUTAGES for failure in (outage, None)]
    consumer = kafka.consumer(
        retry=DeadLetters(), workers=workers, deserialize_value=Failing(*each_before_a_success)
    )
    with running(consumer, lambda message: seen.append(message.value())):
        eventually(lambda: len(seen) == 4)
    assert sorted(seen) == [0, 1, 2, 3]
    assert consumer.metrics.dead_lettered == 0
    assert read_all(kafka.servers, f"{kafka.topic}-dlt") == []


def test_a_handler_without_a_policy_waits_for_the_registry(kafka: Kafka) -> None:
    filled(kafka, *GOOD)
    seen: list[int] = []
    consumer = kafka.consumer(deserialize_value=Failing(OUTAGES[0]))
    with running(consumer, lambda message: seen.append(message.value())):
        eventually(lambda: seen == [0, 1, 2, 3])


def test_a_loop_raises_that_the_registry_does_not_answer_and_begins_with_the_record_again(
    kafka: Kafka,
) -> None:
    filled(kafka, *GOOD)
    with kafka.consumer(deserialize_value=Failing(OUTAGES[0])) as consumer:
        with pytest.raises(StoreUnavailable, match=r"@0: .* registry:8081"):
            next(iter(consumer))
        assert next(iter(consumer)).value() == 0


def test_a_schema_that_the_registry_does_not_have_is_the_fault_of_the_record(kafka: Kafka) -> None:
    filled(kafka, *GOOD)
    deserializer = Failing(RegistryError(404))
    with (
        kafka.consumer(deserialize_value=deserializer) as consumer,
        pytest.raises(DeserializationFailed),
    ):
        next(iter(consumer))


def test_a_hook_that_raises_changes_nothing(kafka: Kafka) -> None:
    filled(kafka, BAD, GOOD[0])
    seen: list[int] = []

    def hook(message: Message, error: BaseException | None) -> None:
        raise ValueError(message, error)

    consumer = kafka.consumer(retry=DeadLetters(), deserialize_value=amount_of, on_dead_letter=hook)
    with running(consumer, lambda message: seen.append(message.value())):
        eventually(lambda: seen == [0])
    assert consumer.metrics.dead_lettered == 1


def test_a_record_that_is_tried_again_is_deserialised_again(kafka: Kafka) -> None:
    filled(kafka, GOOD[3])
    seen: list[int] = []

    def handler(message: Message) -> None:
        seen.append(message.value())  # type: ignore[arg-type]
        if len(seen) < 3:
            raise ConnectionError

    retry = InPlace(backoff=Backoff(first_s=0.01, max_s=0.01))
    with running(kafka.consumer(retry=retry, deserialize_value=amount_of), handler):
        eventually(lambda: len(seen) == 3)
    assert seen == [3, 3, 3]


def test_without_a_policy_the_consumer_stops(kafka: Kafka) -> None:
    filled(kafka, BAD)
    with (
        kafka.consumer(deserialize_value=amount_of) as consumer,
        pytest.raises(HandlerFailed, match="DeserializationFailed"),
    ):
        consumer.run(print)


def test_coroutines_processes_and_units_are_given_the_same(kafka: Kafka, tmp_path: Path) -> None:
    filled(kafka, *GOOD)
    seen: list[int] = []

    async def coroutine(message: Message) -> None:
        seen.append(message.value())  # type: ignore[arg-type]

    with running(kafka.consumer(deserialize_value=amount_of, workers=2), coroutine):
        eventually(lambda: sorted(seen) == [0, 1, 2, 3])

    consumer = kafka.consumer(
        group=f"{kafka.group}-processes",
        worker_kind="process",
        deserialize_value=amount_of,
    )
    with running(consumer, Amounts(str(tmp_path))):
        eventually(lambda: sorted(each.name for each in tmp_path.iterdir()) == ["0", "1", "2", "3"])

    with SqliteStore(tmp_path / "store.db") as store:
        in_units: list[int] = []
        consumer = kafka.consumer(
            group=f"{kafka.group}-units", store=store, deserialize_value=amount_of
        )
        with running(consumer, lambda message, _: in_units.append(message.value())):
            eventually(lambda: in_units == [0, 1, 2, 3])


@pytest.mark.parametrize("name", ["deserialize_key", "deserialize_value"])
def test_a_deserialiser_that_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} = 'json' cannot be called"):
        Consumer("orders", {"bootstrap.servers": "127.0.0.1:1"}, group="shop", **{name: "json"})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["serialize_key", "serialize_value"])
def test_a_serializer_that_cannot_be_called_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"{name} = 'json' cannot be called"):
        Producer({"bootstrap.servers": "127.0.0.1:1"}, **{name: "json"})  # type: ignore[arg-type]


def test_an_error_that_is_its_own_cause_is_a_failure_of_the_record() -> None:
    def deserialize(_data: bytes | None, _context: SerializationContext) -> object:
        error = ValueError("not JSON")
        raise error from error

    failures: list[BaseException] = []

    def call() -> None:
        try:
            Deserializing(None, deserialize)(Message(topic="orders", partition=0, offset=7))
        except BaseException as failure:
            failures.append(failure)

    calling = threading.Thread(target=call, daemon=True)
    calling.start()
    calling.join(PATIENCE_S)
    (failure,) = failures
    assert isinstance(failure, DeserializationFailed)
    assert "not JSON" in failure.what
