"""Requests that take long are dealt with in parts: the answer is one, and order is kept."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from typing import Any

import pytest
from victim import TOPIC, Client, Victim, framed

from lossless.broker import beside
from lossless.broker.host import ASKED_AT_ONCE_MAX, Clock, Host
from lossless.broker.loop import new_event_loop
from lossless.broker.producing import PART_BATCHES
from lossless.core.machine import NOTHING, Effects, Reply, Token
from lossless.engines import cluster
from lossless.log.batch import Record, build
from lossless.wire.versions import API_VERSIONS, APIS

PRODUCE, FIND_COORDINATOR, ALTER_CONFIGS, INCREMENTAL = 0, 10, 33, 44
INVALID_RECORD, UNKNOWN_TOPIC = 87, 3
BATCH = bytes(build([Record(0, 1, b"k", b"v")]).data)


def _fields(batches: list[bytes], *, acks: int = -1, index: int = 0) -> dict[str, Any]:
    partitions = [{"index": index, "records": batch} for batch in batches]
    topics = [{"name": TOPIC, "partition_data": partitions}]
    return {"acks": acks, "timeout": 10_000, "topic_data": topics}


def test_many_batches_of_one_request_are_stored_in_order_and_answered_together(
    victim: Victim,
) -> None:
    batches = [BATCH] * (2 * PART_BATCHES + 10)
    wrong = {0, PART_BATCHES - 1, PART_BATCHES, 2 * PART_BATCHES + 9}
    for number in wrong:
        batches[number] = BATCH[:-1]
    with victim.client() as client:
        before = victim.end_offset(client, TOPIC)
        client.send(framed(PRODUCE, 9, _fields(batches)) + framed(PRODUCE, 9, _fields([BATCH])))
        (topic,) = client.answer(PRODUCE, 9).responses
        ((later,),) = (one.partition_responses for one in client.answer(PRODUCE, 9).responses)
        assert victim.end_offset(client, TOPIC) == before + len(batches) - len(wrong) + 1
    found = [(one.error_code.value, one.base_offset) for one in topic.partition_responses]
    offsets = iter(range(before, before + len(batches)))
    assert found == [
        (INVALID_RECORD, -1) if number in wrong else (0, next(offsets))
        for number in range(len(batches))
    ]
    assert later.base_offset == before + len(batches) - len(wrong)


def test_many_batches_without_acknowledgement_come_before_what_is_sent_next(
    victim: Victim,
) -> None:
    batches = [BATCH] * (PART_BATCHES + 1)
    with victim.client() as client:
        before = victim.end_offset(client, TOPIC)
        client.send(framed(PRODUCE, 9, _fields(batches, acks=0)))
        produced = victim.produce(client, TOPIC, BATCH)
        assert produced.base_offset == before + len(batches)
        client.send(framed(PRODUCE, 9, _fields(batches, acks=0, index=77)))
        assert client.end() == b""  # closed: the partition is not there


def test_a_message_that_quotes_a_long_name_is_answered(victim: Victim) -> None:
    config = {"name": "x" * 0x7FFF, "value": "1"}
    resource = {"resource_type": 2, "resource_name": TOPIC, "configs": [config]}
    with victim.client() as client:
        for key in (ALTER_CONFIGS, INCREMENTAL):
            for version in (0, 1):
                answer = client.ask(key, {"resources": [resource]}, version)
                assert answer.responses[0].error_code.value != 0
                assert len(answer.responses[0].error_message) <= 1000


class _Echo:
    """Answers at once, and notes how many requests come in one turn."""

    def __init__(self) -> None:
        self.turns: list[int] = []

    def on_request(self, _source: int, token: Token, request: Any, _now_ms: int) -> Effects:
        self.turns[-1] += 1
        return Effects(reply=(Reply(token, request),))

    def defer(self) -> None:
        self.turns.append(0)

    def settle(self, _now_ms: int) -> Effects:
        return NOTHING

    def on_start(self, _now_ms: int) -> Effects:
        raise AssertionError

    def on_answer(self, _source: int, _request: Any, _answer: Any, _now_ms: int) -> Effects:
        raise AssertionError

    def on_timer(self, _now_ms: int) -> Effects:
        raise AssertionError

    def on_flushed(self, _log: str, _offset: int, _now_ms: int) -> Effects:
        raise AssertionError


def test_what_one_request_asks_a_machine_is_asked_in_several_turns() -> None:
    machine = _Echo()

    def fail(error: BaseException) -> None:
        raise error

    async def run() -> list[Any]:
        host = Host(
            machine,
            clock=Clock(),
            send=lambda *_: None,
            logs=lambda _: fail(AssertionError("nothing is flushed")),
            on_failure=fail,
        )
        return await host.ask_all(range(2 * ASKED_AT_ONCE_MAX + 2))

    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        assert runner.run(run()) == [*range(2 * ASKED_AT_ONCE_MAX + 2)]
    assert machine.turns == [ASKED_AT_ONCE_MAX, ASKED_AT_ONCE_MAX, 2]


DELETE_GROUPS, ELECT_LEADERS = 42, 43
MANY = 2000
LARGE = {
    "served by the broker": (DELETE_GROUPS, {"groups_names": [f"g{n}" for n in range(MANY)]}),
    "forwarded to the controller": (
        ELECT_LEADERS,
        {"topic_partitions": [{"topic": f"t{n}", "partitions": [0]} for n in range(MANY)]},
    ),
}


@pytest.mark.parametrize(("key", "fields"), LARGE.values(), ids=LARGE)
def test_a_large_message_is_read_and_written_beside_the_event_loop(
    key: int, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {"read": set(), "encoded": set()}
    for name, noted in threads.items():
        real = getattr(beside, name)

        def note(*arguments: Any, real: Any = real, noted: set[str] = noted) -> Any:
            done = real(*arguments)
            if any(isinstance(one, bytes) and len(one) > 8192 for one in (*arguments, done)):
                noted.add(threading.current_thread().name)
            return done

        monkeypatch.setattr(beside, name, note)
    with cluster(kafka="embedded", brokers=1) as started:
        port = int(started.bootstrap_servers.rsplit(":", 1)[1])
        with Client(port) as client:
            later = framed(API_VERSIONS, 0, {})
            client.send(framed(key, APIS[key].highest, fields) + later)
            answer = client.answer(key, APIS[key].highest)
            assert client.answer(API_VERSIONS, 0).error_code.value == 0  # in order
            (many,) = (
                found
                for field in dataclasses.fields(answer)
                if isinstance(found := getattr(answer, field.name), tuple)
            )
            assert len(many) == MANY
    assert threads == {"read": {"messages_0"}, "encoded": {"messages_0"}}


@pytest.mark.parametrize("key", [DELETE_GROUPS, ELECT_LEADERS])
def test_a_large_message_that_is_malformed_closes_its_connection(victim: Victim, key: int) -> None:
    header = framed(key, APIS[key].highest, {})[4:22]
    frame = header + b"\xff" * 20_000
    with victim.client() as client:
        client.send(len(frame).to_bytes(4, "big") + frame)
        assert client.frame() is None
    victim.assert_unharmed()
