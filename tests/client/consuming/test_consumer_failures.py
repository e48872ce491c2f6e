"""Records whose handler raises: tried again in their lane, sent on, or the end of it."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as RawConsumer
from confluent_kafka import Message, TopicPartition
from consumed import PATIENCE_S, Kafka, Running, Seen, eventually, number, running

from lossless.client import headers as names
from lossless.client.errors import HandlerFailed, StoreUnavailable
from lossless.client.producing import Park, Producer
from lossless.client.record import header
from lossless.client.retrying import Backoff, DeadLetters, InPlace, RetryTopics
from lossless.errors import BadInput
from topics import produce

SOON = Backoff(first_s=0.01, max_s=0.01)


def records_of(kafka: Kafka, topic: str, count: int) -> list[Message]:
    reading = RawConsumer({"bootstrap.servers": kafka.servers, "group.id": "reading"})
    try:
        reading.assign([TopicPartition(topic, 0, 0)])
        found = reading.consume(count, PATIENCE_S)
        assert len(found) == count
        return found
    finally:
        reading.close()


def test_a_record_is_tried_again_in_place_while_other_keys_go_on(kafka: Kafka) -> None:
    """Claim C7, pattern one."""
    kafka.make_topic()
    kafka.fill(100, keys=10)
    mended = threading.Event()
    seen = Seen()

    def handler(message: Message) -> None:
        if message.key() == b"4" and not mended.is_set():
            raise ConnectionError("the database is down")
        seen(message)

    consumer = kafka.consumer(
        workers=2, order="key", retry=InPlace(backoff=SOON), commit_every_s=0.05
    )
    with running(consumer, handler):
        seen.wait_for(n for n in range(100) if n % 10 != 4)
        eventually(lambda: consumer.metrics.retried > 3)
        eventually(lambda: kafka.committed() == [4])
        mended.set()
        seen.wait_for(range(100))
    assert [n for n in seen.numbers if n % 10 == 4] == [*range(4, 100, 10)]
    assert len(seen.numbers) == 100
    assert kafka.committed() == [100]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise LookupError("no text")

    __repr__ = __str__


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_whose_text_raises_is_a_failure_of_the_handler(
    kafka: Kafka, workers: int
) -> None:
    kafka.make_topic()
    kafka.fill(1)

    def handler(_: Message) -> None:
        raise Unprintable

    consumer = kafka.consumer(workers=workers)
    said = "Unprintable: <its __str__ raised LookupError>"
    with pytest.raises(HandlerFailed, match=said), running(consumer, handler) as run:
        run.join()


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_record_whose_exception_has_no_text_becomes_a_dead_letter(
    kafka: Kafka, attempts: int, capfd: pytest.CaptureFixture[str]
) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    kafka.fill(1)

    def handler(_: Message) -> None:
        raise Unprintable

    retry = InPlace(attempts=attempts, backoff=SOON, then="dead-letter")
    with running(kafka.consumer(retry=retry), handler):
        (letter,) = records_of(kafka, f"{kafka.topic}-dlt", 1)
    text = header(letter.headers() or [], names.EXCEPTION_MESSAGE)
    assert text == b"<its __str__ raised LookupError>"
    assert "Logging error" not in capfd.readouterr().err


@pytest.mark.parametrize("options", [{}, {"workers": 3, "order": "none"}])
def test_nobody_goes_past_a_record_that_failed_for_good(
    kafka: Kafka, options: dict[str, Any]
) -> None:
    """Record 30 failed and 31 succeeded: 31 is not committed (claim C7)."""
    kafka.make_topic()
    kafka.fill(60)
    seen = Seen()
    attempts = Counter[int]()

    def handler(message: Message) -> None:
        attempts[number(message)] += 1
        if number(message) == 30:
            if options:
                seen.wait_for([31])
            raise KeyError("no such customer")
        seen(message)

    policy = InPlace(attempts=2, backoff=SOON, then="stop")
    with kafka.consumer(retry=policy, **options) as consumer:
        with pytest.raises(HandlerFailed, match="30") as failed:
            consumer.run(handler)
        assert isinstance(failed.value.__cause__, KeyError)
    assert attempts[30] == 2
    assert kafka.committed() == [30]


def test_dead_letters_are_acknowledged_before_the_record_counts_as_finished(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.make_topic(topic=f"{kafka.topic}-dlt")
    kafka.fill(10, keys=3)
    seen = Seen()

    def handler(message: Message) -> None:
        if number(message) == 6:
            raise ValueError("not a number")
        seen(message)

    consumer = kafka.consumer(retry=DeadLetters())
    with running(consumer, handler):
        seen.wait_for(set(range(10)) - {6})
        eventually(lambda: consumer.metrics.finished == 10)
    (letter,) = records_of(kafka, f"{kafka.topic}-dlt", 1)
    assert (letter.key(), letter.value()) == (b"0", b"6")
    assert header(letter.headers(), names.ORIGINAL_TOPIC) == kafka.topic.encode()
    assert header(letter.headers(), names.EXCEPTION_MESSAGE) == b"not a number"
    assert consumer.metrics.dead_lettered == 1
    assert kafka.committed() == [10]


class Slow:
    """A producer whose copies are acknowledged when a test says so."""

    def __init__(self) -> None:
        self.sent_to: list[str] = []
        self.acknowledged = threading.Event()

    def send(self, topic: str, *_: object, **__: object) -> Slow:
        self.sent_to.append(topic)
        return self

    def result(self, timeout_s: float | None = None) -> None:
        assert self.acknowledged.wait(timeout_s or PATIENCE_S)


def test_a_record_that_is_on_its_way_to_the_dead_letters_is_not_passed(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)
    seen, slow = Seen(), Slow()

    def handler(message: Message) -> None:
        if number(message) == 3:
            raise ValueError("no order may be 3")
        seen(message)

    consumer = kafka.consumer(
        workers=2, order="none", retry=DeadLetters(), producer=slow, commit_every_s=0.05
    )
    with running(consumer, handler):
        seen.wait_for(n for n in range(10) if n != 3)
        eventually(lambda: slow.sent_to == [f"{kafka.topic}-dlt"])
        eventually(lambda: kafka.committed() == [3])
        assert (consumer.metrics.finished, consumer.metrics.dead_lettered) == (9, 0)
        slow.acknowledged.set()
        eventually(lambda: kafka.committed() == [10])
    assert consumer.metrics.dead_lettered == 1


def test_a_record_that_cannot_be_sent_on_is_not_passed(kafka: Kafka) -> None:
    kafka.make_topic()
    kafka.fill(10)

    class Refusing:
        def send(self, *_: object, **__: object) -> Any:
            from lossless.client.errors import Refused

            raise Refused("too large")

    def handler(message: Message) -> None:
        if number(message) == 6:
            raise ValueError("not a number")

    with (
        kafka.consumer(retry=DeadLetters(), producer=Refusing()) as consumer,
        pytest.raises(HandlerFailed, match="could not be sent on"),
    ):
        consumer.run(handler)
    assert kafka.committed() == [6]


@pytest.mark.parametrize(
    "options",
    [{}, {"retry": DeadLetters()}, {"retry": InPlace(attempts=2, backoff=SOON), "workers": 2}],
)
def test_a_record_waits_for_a_store_that_is_unreachable_whatever_the_policy(
    kafka: Kafka, options: dict[str, Any]
) -> None:
    kafka.make_topic()
    kafka.fill(10)
    outages: list[int] = []
    seen = Seen()

    def handler(message: Message) -> None:
        if number(message) == 3 and len(outages) < 3:
            outages.append(3)
            raise StoreUnavailable("Redis does not answer")
        seen(message)

    consumer = kafka.consumer(**options)
    with running(consumer, handler):
        seen.wait_for(range(10))
    assert seen.numbers == list(range(10))
    assert (consumer.metrics.dead_lettered, consumer.metrics.failed) == (0, 0)
    assert kafka.committed() == [10]


def test_retry_topics_delay_and_then_give_up_to_the_dead_letters(kafka: Kafka) -> None:
    """Claim C7, pattern two."""
    kafka.make_topic()
    for suffix in ("retry-0", "retry-1", "dlt"):
        kafka.make_topic(topic=f"{kafka.topic}-{suffix}")
    kafka.fill(20)
    seen = Seen()
    attempts: list[tuple[str | None, int]] = []

    def handler(message: Message) -> None:
        n = number(message)
        if n in (3, 7):
            attempts.append((message.topic(), n))
            if n == 3 or len([a for a in attempts if a[1] == 7]) == 1:
                raise TimeoutError("too slow")
        seen(message)

    consumer = kafka.consumer(retry=RetryTopics(delays_s=(0.1, 0.2)))
    with running(consumer, handler):
        seen.wait_for(set(range(20)) - {3})
        eventually(lambda: consumer.metrics.dead_lettered == 1)
        eventually(lambda: consumer.metrics.finished >= 20 + 3)
    topic = kafka.topic
    assert [a for a in attempts if a[1] == 3] == [
        (topic, 3),
        (f"{topic}-retry-0", 3),
        (f"{topic}-retry-1", 3),
    ]
    assert [a for a in attempts if a[1] == 7] == [(topic, 7), (f"{topic}-retry-0", 7)]
    (letter,) = records_of(kafka, f"{topic}-dlt", 1)
    assert letter.value() == b"3"
    assert header(letter.headers(), names.EXCEPTION_FQCN) == b"TimeoutError"
    assert kafka.committed() == [20]
    assert kafka.committed(topic=f"{topic}-retry-0") == [2]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_retry_topic_that_the_first_failure_creates_is_read_at_once(
    kafka: Kafka, protocol: str
) -> None:
    kafka.make_topic()
    kafka.fill(1)
    tried: list[str | None] = []

    def handler(message: Message) -> None:
        tried.append(message.topic())
        if len(tried) < 3:
            raise TimeoutError("too slow")

    settings: dict[str, Any] = {"group.protocol": protocol}
    if protocol == "consumer":
        settings["session.timeout.ms"] = None
    consumer = kafka.consumer(retry=RetryTopics(delays_s=(0.1, 0.1)), settings=settings)
    with running(consumer, handler):
        eventually(lambda: len(tried) == 3)
    assert tried == [kafka.topic, f"{kafka.topic}-retry-0", f"{kafka.topic}-retry-1"]


@pytest.mark.parametrize("keep_key_order", [False, True])
def test_a_group_tries_its_own_records_again_and_no_others(
    kafka: Kafka, keep_key_order: bool
) -> None:
    kafka.make_topic()
    for suffix in ("retry-0", "dlt"):
        kafka.make_topic(topic=f"{kafka.topic}-{suffix}")
    kafka.fill(10, keys=5)
    seen, tried = Seen(), Seen()

    def handler(message: Message) -> None:
        tried(message)
        if number(message) == 3 and message.topic() == kafka.topic:
            raise TimeoutError("too slow")

    policy = RetryTopics(delays_s=(0.1,), keep_key_order=keep_key_order)
    options: dict[str, Any] = {"retry": policy, "workers": 2, "order": "key"}
    failing = kafka.consumer(**options)
    other = kafka.consumer(**options, group=f"shipping-{kafka.group}")
    with running(failing, handler), running(other, seen):
        seen.wait_for(range(10))
        eventually(lambda: tried.numbers.count(3) == 2)
        retried = 2 if keep_key_order else 1  # 8 has the key of 3, and waits behind it
        eventually(lambda: failing.metrics.finished >= 10 + failing.metrics.forwarded)
        # The other group has read the retried records too, and is done with them.
        eventually(lambda: other.metrics.finished == 10 + failing.metrics.forwarded)
        assert 1 <= failing.metrics.forwarded <= retried
    assert sorted(seen.numbers) == list(range(10))


def test_records_of_a_key_that_waits_go_behind_it(kafka: Kafka) -> None:
    kafka.make_topic()
    for suffix in ("retry-0", "dlt"):
        kafka.make_topic(topic=f"{kafka.topic}-{suffix}")
    kafka.fill(40, keys=4)
    mended = threading.Event()
    order: dict[object, list[int]] = {}
    came_by: dict[int, str | None] = {}
    failed: set[int] = set()

    def handler(message: Message) -> None:
        if message.key() == b"2" and not mended.is_set():
            failed.add(number(message))
            raise TimeoutError("too slow")
        came_by[number(message)] = message.topic()
        order.setdefault(message.key(), []).append(number(message))

    policy = RetryTopics(delays_s=(0.05,) * 1000, keep_key_order=True)
    consumer = kafka.consumer(workers=4, order="key", retry=policy, commit_every_s=0.1)
    with running(consumer, handler):
        eventually(lambda: sum(map(len, order.values())) == 30)
        eventually(lambda: kafka.committed() == [40])
        assert failed == {2}  # only the first of its key was tried, the others wait behind it
        mended.set()
        eventually(lambda: len(order.get(b"2", [])) == 10)
        # Free again once the group has committed past all of them.
        eventually(lambda: kafka.committed(topic=f"{kafka.topic}-retry-0") == [10])
        eventually(lambda: _processed_directly(kafka, came_by))
    assert order[b"2"][:10] == list(range(2, 40, 4))
    assert order[b"2"] == sorted(order[b"2"])


def _processed_directly(kafka: Kafka, came_by: dict[int, str | None]) -> bool:
    """Sends one more of the key, and waits until it has come through, one way or the other."""
    n = 1000 + len(came_by)
    produce(kafka.servers, kafka.topic, [(0, b"2", b"%d" % n)])
    eventually(lambda: n in came_by)
    return came_by[n] == kafka.topic


def test_a_new_owner_finds_the_keys_that_wait(kafka: Kafka) -> None:
    kafka.make_topic()
    for suffix in ("retry-0", "dlt"):
        kafka.make_topic(topic=f"{kafka.topic}-{suffix}")
    kafka.fill(8, keys=4)
    policy = RetryTopics(delays_s=(3600.0,), keep_key_order=True)

    def fails(message: Message) -> None:
        if message.key() == b"2":
            raise TimeoutError("too slow")

    first = Running(kafka.consumer(workers=2, order="key", retry=policy), fails)
    eventually(lambda: first.consumer.metrics.finished == 8)
    first.close()
    kafka.fill(8, first=8, keys=4)
    seen = Seen()
    with running(kafka.consumer(workers=2, order="key", retry=policy), seen) as second:
        eventually(lambda: second.consumer.metrics.finished == 8)
    assert sorted(seen.numbers) == [n for n in range(8, 16) if n % 4 != 2]
    behind = records_of(kafka, f"{kafka.topic}-retry-0", 4)
    assert [number(message) for message in behind] == [2, 6, 10, 14]


def test_a_producer_that_parks_is_refused(kafka: Kafka, tmp_path: Path) -> None:
    """A copy on disk may wait for longer than any handler does."""
    settings = {"bootstrap.servers": kafka.servers}
    with (
        Producer(settings, giving_up=Park(tmp_path), audit=False) as producer,
        pytest.raises(BadInput, match="a producer that parks"),
    ):
        kafka.consumer(retry=DeadLetters(), producer=producer)
