"""A leader that has asked a coordinator does not wait for one that coordinates no more."""

from __future__ import annotations

import pytest
from machines import PARTITION, led_by, records

from lossless.core.coordination import Coordination, CoordinationConfig
from lossless.core.machine import Send
from lossless.core.messages import TRANSACTIONS_TOPIC, Error, Produce
from lossless.core.metadata import Image, PartitionChanged
from lossless.core.replica import Replica
from lossless.core.transactions.messages import AddPartitionsToTxn, AddPartitionsToTxnAnswer
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

ADDS = 12  # the version of Produce from which on the leader adds partitions
QUESTION = AddPartitionsToTxn("shop", 1000, 0, (PARTITION,))
YES = AddPartitionsToTxnAnswer("shop", ((PARTITION, Error.NONE),))


class Leader:
    """Broker 1 leads a partition; the coordinator is broker 2 until it moves."""

    def __init__(self) -> None:
        self.image = Image()
        replica = Replica(PARTITION, 1, Log(MemoryStore()), is_eligible=lambda *_: True)
        replica.on_partition_state(led_by(1, 0), 1, 0)
        self.coordination = Coordination(
            CoordinationConfig(),
            image=lambda: self.image,
            replicas={PARTITION: replica},
            touch=lambda _: None,
            draw=lambda _: 0,
            next_producer_id=lambda: None,
        )
        self.coordinated_by(2)

    def coordinated_by(self, broker: int) -> None:
        state = led_by(broker, broker)
        self.image.apply(PartitionChanged(TRANSACTIONS_TOPIC, 0, state), self.image.end_offset)
        self.coordination.on_leadership(0)

    def produce(self, token: str) -> None:
        data = records(producer_id=1000, epoch=0, sequence=0, transactional=True)
        request = Produce(-1, 1000, ((PARTITION, data),), "shop", ADDS)
        assert self.coordination.holds(token, request, 0)

    def sent(self) -> list[Send]:
        sends, self.coordination.sends = self.coordination.sends, []
        return sends

    def released(self) -> dict[object, dict[object, Error]]:
        released, self.coordination.released = self.coordination.released, []
        return {token: dict(refused) for token, _, refused in released}


@pytest.fixture
def leader() -> Leader:
    leader = Leader()
    leader.produce("first")
    assert leader.sent() == [Send(2, QUESTION)]
    return leader


def test_who_waits_for_a_coordinator_that_has_moved_is_told_to_come_again(leader: Leader) -> None:
    leader.coordinated_by(3)
    assert leader.released() == {"first": {PARTITION: Error.NOT_ENOUGH_REPLICAS}}
    leader.produce("again")
    assert leader.sent() == [Send(3, QUESTION)]
    leader.coordination.on_answer(3, QUESTION, YES, 0)
    assert leader.released() == {"again": {}}


def test_who_coordinated_before_does_not_answer_for_who_does_now(leader: Leader) -> None:
    leader.coordinated_by(3)
    leader.produce("again")
    leader.released()
    leader.coordination.on_answer(2, QUESTION, YES, 0)
    assert leader.released() == {}


def test_a_coordinator_that_stays_is_waited_for(leader: Leader) -> None:
    leader.coordinated_by(2)
    assert leader.released() == {}
    leader.coordination.on_answer(2, QUESTION, YES, 0)
    assert leader.released() == {"first": {}}
