"""Ids for producers: given from blocks, none twice, and nobody waits for a controller for ever."""

from __future__ import annotations

from lossless.core.machine import Reply
from lossless.core.messages import AllocateProducerIdsAnswer, Error, InitProducerIdAnswer
from lossless.core.producer_ids import LOW, WAIT_MS_MAX, ProducerIds


def block(first: int, size: int = 1000) -> AllocateProducerIdsAnswer:
    return AllocateProducerIdsAnswer(Error.NONE, first, size)


def ids(replies: list[Reply]) -> list[int]:
    return [reply.answer.producer_id for reply in replies]


def test_who_asks_first_waits_for_a_block_and_the_next_are_answered_at_once() -> None:
    known = ProducerIds()
    assert not known.wants_block
    assert known.on_request("a", 0) == []
    assert known.wants_block
    assert ids(known.on_block(block(5000), 1, 100)) == [5000]
    assert ids(known.on_request("b", 2)) == [5001]
    assert not known.wants_block


def test_the_next_block_is_asked_for_before_the_last_id_is_gone() -> None:
    known = ProducerIds()
    known.on_request("a", 0)
    known.on_block(block(0), 0, 100)
    given = [known.take() for _ in range(1000 - LOW)]
    assert known.wants_block
    known.on_block(block(9000), 0, 100)
    given += [known.take() for _ in range(LOW + 1)]
    assert len(set(given)) == len(given)
    assert given[-1] == 9001


def test_a_refusal_is_asked_again_after_a_while() -> None:
    known = ProducerIds()
    known.on_request("a", 0)
    for answer in (None, AllocateProducerIdsAnswer(Error.NOT_CONTROLLER)):
        assert known.on_block(answer, 50, 100) == []
        assert known.ask_ms == 150
        assert known.wants_block


def test_who_has_waited_long_enough_is_told_to_come_again() -> None:
    known = ProducerIds()
    known.on_request("a", 0)
    known.on_request("b", 500)
    assert known.deadline_ms == WAIT_MS_MAX
    assert known.expire(WAIT_MS_MAX - 1) == []
    (late,) = known.expire(WAIT_MS_MAX)
    assert late == Reply("a", InitProducerIdAnswer(Error.COORDINATOR_LOAD_IN_PROGRESS))
    assert ids(known.on_block(block(7), 1100, 100)) == [7]
    assert known.deadline_ms is None
