"""The topic of acknowledged counts is read to its end: no further, and without waiting for more."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import TopicMetadata

from lossless.acknowledged import AcknowledgedCount, AcknowledgedCounter
from lossless.errors import Unavailable
from lossless.pipeline.audit.log import _read_to_end


@dataclass
class Message:
    at: int
    content: bytes | None = None
    code: int | None = None
    position: int = 0

    def offset(self) -> int:
        return self.position

    def partition(self) -> int:
        return self.at

    def value(self) -> bytes | None:
        return self.content

    def error(self) -> KafkaError | None:
        return None if self.code is None else KafkaError(self.code)


class ScriptedConsumer:
    """Gives one message after the other, and then nothing, as a consumer that is asked once more
    than there is would wait for."""

    def __init__(self, *messages: Message) -> None:
        self.messages = list(messages)
        self.asked = 0

    def get_watermark_offsets(self, _partition: TopicPartition, **_: float) -> tuple[int, int]:
        return 0, 1

    def assign(self, positions: list[TopicPartition]) -> None:
        self.assigned = positions

    def poll(self, _timeout_s: float) -> Message | None:
        self.asked += 1
        return self.messages.pop(0) if self.messages else None


def report() -> AcknowledgedCount:
    counter = AcknowledgedCounter(producer="shop@here#1", instance="one")
    counter.add(topic="orders", topic_id="id", partition=0, offset=7, timestamp_ms=1)
    (only,) = counter.reports(1, flush=True)
    return only


def end_of(partition: int, offset: int = 1) -> Message:
    return Message(partition, code=KafkaError._PARTITION_EOF, position=offset)


def topic(*partitions: int, error: KafkaError | None = None) -> TopicMetadata:
    return SimpleNamespace(partitions=dict.fromkeys(partitions), error=error)  # type: ignore[return-value]


def test_it_is_read_until_every_partition_has_ended_and_not_asked_again() -> None:
    told = report()
    consumer = ScriptedConsumer(end_of(1), Message(0, told.to_bytes()), end_of(0))
    assert _read_to_end(consumer, topic(0, 1)).reports == [told]
    assert consumer.asked == 3


def test_an_end_that_comes_too_soon_is_none() -> None:
    """Claim R19: a new leader may not know yet how far all have come."""
    told = report()
    consumer = ScriptedConsumer(end_of(0, offset=0), Message(0, told.to_bytes()), end_of(0))
    assert _read_to_end(consumer, topic(0)).reports == [told]


def test_a_topic_that_a_broker_cannot_tell_of_is_not_taken_for_an_empty_one() -> None:
    unknown = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(KafkaException):
        _read_to_end(ScriptedConsumer(), topic(error=unknown))


def test_silence_is_told() -> None:
    with pytest.raises(Unavailable, match="__lossless_audit did not answer within 15 s"):
        _read_to_end(ScriptedConsumer(end_of(0)), topic(0, 1))


def test_an_error_is_kafkas() -> None:
    failed = Message(0, code=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        _read_to_end(ScriptedConsumer(failed), topic(0))


@pytest.mark.parametrize(
    "content",
    [
        b"not a report",
        b"",
        b"[" * 100_000,
        report().to_bytes().replace(b'"version":1', b'"version":2'),
        report().to_bytes().replace(b'"count":1', b'"count":"one"'),
        report().to_bytes().replace(b'"width_ms":60000', b'"width_ms":0'),
        report().to_bytes().replace(b'"partition":0', b'"partition":null'),
    ],
)
def test_a_malformed_report_is_skipped_and_noted(content: bytes) -> None:
    good = report()
    consumer = ScriptedConsumer(Message(0, content), Message(0, good.to_bytes()), end_of(0))
    found = _read_to_end(consumer, topic(0))
    assert found.reports == [good]
    assert len(found.skipped) == 1
    assert "1 record of __lossless_audit could not be read" in found.notes[0]
