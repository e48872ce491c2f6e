"""Questions about the log while its leaders move: asked again, or given up with a clear word.

No cluster can be told to be in just this state when it is asked, so that the answers are scripted.
"""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
    Uuid,
)
from confluent_kafka.admin import ListOffsetsResultInfo

from lossless.errors import BadInput, Unavailable
from lossless.pipeline import source as source_module
from lossless.pipeline.ledger import SourcePartition
from lossless.pipeline.source import LEADER_ERRORS, MOVING_ATTEMPTS, PATIENCE_S, SourceLog

ORDERS = SourcePartition("orders", "the-topic-id", 0)


class ScriptedAdmin:
    """Answers each question about offsets with the next code of a script, or with offset 7."""

    def __init__(self, *script: int | None) -> None:
        self.script = iter(script)
        self.timeouts: list[float] = []
        self.looked = 0

    def list_offsets(
        self, wanted: dict[TopicPartition, Any], **options: Any
    ) -> dict[TopicPartition, Future[ListOffsetsResultInfo]]:
        self.timeouts.append(options["request_timeout"])
        code = next(self.script)
        answers = {partition: Future[ListOffsetsResultInfo]() for partition in wanted}
        for future in answers.values():
            if code is None or code == OFFSET_INVALID:
                offset = 7 if code is None else OFFSET_INVALID
                future.set_result(ListOffsetsResultInfo(offset, -1, -1))
            else:
                future.set_exception(KafkaException(KafkaError(code)))
        return answers

    def list_topics(self, _topic: str, **_options: Any) -> None:
        self.looked += 1


def asking(admin: ScriptedAdmin) -> SourceLog:
    source = SourceLog({"bootstrap.servers": "127.0.0.1:1"})
    source._admin = admin
    return source


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module.time, "sleep", lambda _: None)


@pytest.mark.parametrize("code", LEADER_ERRORS)
def test_a_leader_that_is_moving_is_asked_again(code: int) -> None:
    admin = ScriptedAdmin(code, code, None)
    assert asking(admin).latest([ORDERS]) == {ORDERS: 7}
    assert admin.looked == 2


def test_a_leader_that_never_settles_is_given_up() -> None:
    admin = ScriptedAdmin(*[KafkaError.OFFSET_NOT_AVAILABLE] * MOVING_ATTEMPTS)
    with pytest.raises(Unavailable, match=r"no answer from Kafka at 127\.0\.0\.1:1"):
        asking(admin).latest([ORDERS])
    assert len(admin.timeouts) == MOVING_ATTEMPTS


@pytest.mark.parametrize("silence", [KafkaError._TIMED_OUT, OFFSET_INVALID])
def test_silence_is_met_with_more_patience_each_time_and_then_given_up(silence: int) -> None:
    admin = ScriptedAdmin(*[silence] * len(PATIENCE_S))
    with pytest.raises(Unavailable, match="no answer from Kafka"):
        asking(admin).latest([ORDERS])
    assert admin.timeouts == list(PATIENCE_S)


def test_a_topic_that_is_not_there_is_bad_input_at_once() -> None:
    admin = ScriptedAdmin(KafkaError.UNKNOWN_TOPIC_OR_PART)
    with pytest.raises(BadInput):
        asking(admin).latest([ORDERS])
    assert admin.looked == 0


def test_nothing_is_asked_about_no_partitions() -> None:
    admin = ScriptedAdmin()
    assert asking(admin).latest([]) == {}
    assert admin.timeouts == []


def test_topics_without_an_id_are_refused() -> None:
    class OldBrokers(ScriptedAdmin):
        def describe_topics(self, _topics: TopicCollection, **_: Any) -> dict[str, Future[Any]]:
            described: Future[Any] = Future()
            id_of_none = Uuid(0, 0)
            described.set_result(
                SimpleNamespace(topic_id=id_of_none, partitions=[SimpleNamespace(id=0)])
            )
            return {"orders": described}

    with pytest.raises(BadInput, match="the brokers give no topic id for orders"):
        asking(OldBrokers()).partitions(["orders"])


def test_a_pattern_leaves_out_internal_topics() -> None:
    class Listing(ScriptedAdmin):
        def list_topics(self, *_: Any, **_options: Any) -> Any:
            return SimpleNamespace(
                topics=["orders", "__consumer_offsets", "__lossless_audit", "__own"]
            )

    assert asking(Listing()).topics([], ".*") == ["orders"]
    assert asking(Listing()).topics(["__own"]) == ["__own"]
