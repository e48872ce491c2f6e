"""Which commits are asked for, and what is made of the answers, without a broker."""

from __future__ import annotations

import time
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from lossless.client.consuming.committing import REFUSED, RETRY_MAX_S, ZOMBIE, Committer
from lossless.client.consuming.interfaces import Place
from lossless.client.metrics import ConsumerMetrics

ORDERS: Place = ("orders", 0)
PAYMENTS: Place = ("payments", 0)


class Broker:
    """Stands where confluent-kafka's consumer does; answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[dict[Place, int]] = []
        self.failing: list[int] = []  # codes, for synchronous commits

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.asked.append({(each.topic, each.partition): each.offset for each in offsets})
        if not asynchronous and self.failing:
            raise KafkaException(KafkaError(self.failing.pop(0)))
        return offsets


class Committing:
    def __init__(self, **options: Any) -> None:
        self.broker = Broker()
        self.refusals: list[KafkaError] = []
        self.metrics = ConsumerMetrics(group="g")
        self.committer = Committer(
            cast("Consumer", self.broker),
            self.metrics,
            **{"every_s": 5.0, "every_records": None, **options},
            refused=self.refusals.append,
        )
        self._finished = 0

    def finish(self, place: Place, offset: int, metadata: str = "") -> None:
        self._finished += 1
        self.committer.add({place: TopicPartition(*place, offset, metadata=metadata)})

    def commit(self, now: float = 0.0) -> dict[Place, int] | None:
        """What was asked for; None: nothing."""
        before = len(self.broker.asked)
        self.committer.commit(self._finished, now)
        return self.broker.asked[-1] if len(self.broker.asked) > before else None

    def answer(self, code: int | None = None) -> None:
        asked = [TopicPartition(*place, offset) for place, offset in self.broker.asked[-1].items()]
        self.committer.on_commit(None if code is None else KafkaError(code), asked)

    def due(self, now: float) -> bool:
        return self.committer.due(self._finished, now)


def test_what_is_forgotten_is_never_committed() -> None:
    committing = Committing()
    committing.finish(ORDERS, 5)
    committing.finish(PAYMENTS, 7)
    committing.committer.forget([ORDERS])
    assert committing.commit() == {PAYMENTS: 7}
    committing.committer.forget([PAYMENTS])
    committing.answer(KafkaError.REQUEST_TIMED_OUT)  # of what was under way
    assert committing.commit() is None
    assert committing.committer.commit_now([ORDERS, PAYMENTS], 0)
    assert len(committing.broker.asked) == 1


@pytest.mark.parametrize("code", sorted(ZOMBIE))
def test_a_member_that_the_group_has_left_behind_commits_nothing_until_the_group_has_spoken(
    code: int,
) -> None:
    committing = Committing()
    committing.finish(ORDERS, 5)
    assert committing.commit() == {ORDERS: 5}
    committing.answer(code)
    committing.finish(ORDERS, 6)
    assert committing.commit() is None
    assert not committing.committer.commit_now([ORDERS], 0)
    assert len(committing.broker.asked) == 1
    committing.committer.group_has_spoken()  # and left the partition here
    assert committing.commit() == {ORDERS: 6}


def test_offsets_only_go_up_but_what_is_finished_beyond_them_is_news() -> None:
    committing = Committing()
    committing.committer.committed_before(ORDERS, TopicPartition(*ORDERS, 5))
    committing.finish(ORDERS, 4)
    assert committing.commit() is None
    committing.finish(ORDERS, 5)
    assert committing.commit() is None
    committing.finish(ORDERS, 5, "lossless1:cgEB")
    assert committing.commit() == {ORDERS: 5}
    committing.answer()
    committing.finish(ORDERS, 5, "lossless1:cgEB")
    assert committing.commit() is None
    assert committing.committer.committed(ORDERS) == 5


def test_one_commit_is_under_way_at_a_time() -> None:
    committing = Committing(every_records=1)
    committing.finish(ORDERS, 1)
    assert committing.due(now=0)
    assert committing.commit() == {ORDERS: 1}
    committing.finish(ORDERS, 2)
    assert not committing.due(now=100)
    committing.answer()
    assert committing.due(now=100)


def test_a_commit_that_failed_for_a_while_is_tried_again_though_nothing_more_is_finished() -> None:
    committing = Committing()
    committing.finish(ORDERS, 1)
    committing.commit()
    committing.answer(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
    now = time.monotonic()
    assert not committing.due(now)
    assert committing.due(now + RETRY_MAX_S)
    assert committing.commit(now) == {ORDERS: 1}
    committing.answer()
    assert not committing.due(now + RETRY_MAX_S)


@pytest.mark.parametrize("code", sorted(REFUSED))
def test_a_commit_that_is_refused_for_good_is_told_and_not_repeated(code: int) -> None:
    committing = Committing()
    committing.finish(ORDERS, 1)
    committing.commit()
    committing.answer(code)
    assert [error.code() for error in committing.refusals] == [code]
    assert not committing.due(now=1)
    assert committing.metrics.commits_failed == 1


def test_the_last_commit_before_partitions_go_is_tried_again_while_the_reason_passes() -> None:
    committing = Committing()
    committing.finish(ORDERS, 1)
    committing.finish(PAYMENTS, 2)
    committing.broker.failing = [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError._TRANSPORT]
    assert committing.committer.commit_now([ORDERS], 30)
    assert committing.broker.asked == [{ORDERS: 1}] * 3
    committing.broker.failing = [KafkaError._TRANSPORT]
    assert not committing.committer.commit_now([PAYMENTS], 0)  # out of time


def test_who_commits_by_transactions_commits_nothing_else() -> None:
    committing = Committing()
    committing.committer.by_transactions = True
    committing.finish(ORDERS, 1)
    assert committing.commit() is None
    assert committing.committer.commit_now([ORDERS], 0)
    assert committing.broker.asked == []
    assert committing.committer.positions()[ORDERS].offset == 1
