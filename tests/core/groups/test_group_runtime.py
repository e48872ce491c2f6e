"""The group coordinator in the runtime of coordinators: answers wait for what they rest on."""

from __future__ import annotations

from typing import Any

from group_host import GROUP, ORDERS_0, joining
from machines import led_by

from lossless.core.coordinator import Coordinators, Shard, partition_for
from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.messages import (
    Heartbeat,
    HeartbeatAnswer,
    JoinGroupAnswer,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    SyncGroupAnswer,
    TxnOffsetCommit,
    key_of,
)
from lossless.core.groups.shard import GroupShard, refusal
from lossless.core.messages import Error, FetchPartition, Producer, TopicPartition, WriteTxnMarker
from lossless.core.replica import Replica
from lossless.log.log import Log
from lossless.log.memory import MemoryStore

OFFSETS_TOPIC = "__consumer_offsets"
PARTITION = TopicPartition(OFFSETS_TOPIC, 0)
TOPICS = {"orders": TopicView(0xA1, 3)}


def make(number: int) -> Shard:
    config = GroupConfig(initial_rebalance_delay_ms=0)
    return GroupShard(number, config=config, draw=lambda _: 1, topics=lambda: TOPICS)


class Broker:
    """Leads the partition, with another broker in sync that fetches when it is told to."""

    def __init__(self) -> None:
        self.replica = Replica(
            PARTITION, 1, Log(MemoryStore()), is_eligible=lambda _broker, _epoch: True
        )
        self.coordinators = Coordinators(
            OFFSETS_TOPIC, {PARTITION: self.replica}, make, refusal, lambda _partition: None
        )
        self.lead(1)

    def lead(self, epoch: int) -> None:
        state = led_by(1, epoch, isr=(1, 2), replicas=(1, 2))
        self.replica.on_partition_state(state, 1, 0)
        self.coordinators.on_leadership(0)
        self.follow()

    def follow(self) -> None:
        """The other has everything."""
        end_offset = self.replica.log.log_end_offset
        for offset in (0, end_offset):
            asked = FetchPartition(PARTITION, offset, self.replica.leader_epoch)
            self.replica.on_follower_fetch(2, 1, asked, 0)

    def ask(self, token: int, request: Any) -> Any:
        """The answer, if there is one."""
        number = partition_for(key_of(request), 1)
        self.coordinators.on_request(number, token, request, 0)
        return self.answered().get(token)

    def answered(self) -> dict[int, Any]:
        self.coordinators.complete()
        replies = dict(self.coordinators.replies)
        self.coordinators.replies.clear()
        return replies

    def tick(self) -> None:
        wake_ms = self.coordinators.wake_ms
        assert wake_ms is not None
        self.coordinators.on_timer(wake_ms)

    def stable(self) -> str:
        required: JoinGroupAnswer = self.ask(1, joining())
        assert self.ask(2, joining(required.member_id)) is None
        self.tick()
        assert self.answered()[2].generation_id == 1
        return required.member_id


def test_an_assignment_is_told_when_it_is_committed() -> None:
    broker = Broker()
    member = broker.stable()
    request = SyncGroup(GROUP, 1, member, assignments=((member, b"all"),))
    assert broker.ask(3, request) is None
    # So is everything that was decided later.
    assert broker.ask(4, Heartbeat(GROUP, 1, member)) is None
    broker.follow()
    assert broker.answered() == {
        3: SyncGroupAnswer(Error.NONE, "consumer", "range", b"all"),
        4: HeartbeatAnswer(Error.NONE),
    }


def test_a_new_coordinator_knows_the_group_from_the_log() -> None:
    broker = Broker()
    member = broker.stable()
    broker.ask(3, SyncGroup(GROUP, 1, member, assignments=((member, b"all"),)))
    broker.follow()
    broker.answered()
    broker.lead(2)
    assert broker.ask(4, Heartbeat(GROUP, 1, member)) == HeartbeatAnswer(Error.NONE)
    assert broker.ask(5, SyncGroup(GROUP, 1, member)).assignment == b"all"


def test_who_waits_at_a_coordinator_that_is_no_more_is_told_to_look_elsewhere() -> None:
    broker = Broker()
    required = broker.ask(1, joining())
    broker.ask(2, joining(required.member_id))
    broker.replica.on_partition_state(led_by(2, 2, isr=(1, 2), replicas=(1, 2)), 1, 0)
    broker.coordinators.on_leadership(0)
    assert broker.answered() == {2: JoinGroupAnswer(Error.NOT_COORDINATOR, required.member_id)}
    assert broker.ask(3, joining()) == JoinGroupAnswer(Error.NOT_COORDINATOR, "")


def test_offsets_of_a_transaction_count_with_its_marker_live_and_from_the_log() -> None:
    broker = Broker()
    offsets = (OffsetToCommit(ORDERS_0, 9),)
    broker.ask(1, OffsetCommit(GROUP, (OffsetToCommit(ORDERS_0, 5),)))
    broker.ask(2, TxnOffsetCommit(GROUP, offsets, Producer(7, 0)))
    broker.follow()
    broker.answered()
    fetch = OffsetFetch(GROUP, (ORDERS_0,), require_stable=True)
    assert broker.ask(3, fetch).partitions[0].error is Error.UNSTABLE_OFFSET_COMMIT
    marker = WriteTxnMarker(PARTITION, 7, 0, 1, True)
    assert broker.replica.append_marker(marker, 0).produced.error is Error.NONE
    broker.coordinators.on_marker(marker)
    broker.follow()
    assert broker.ask(4, fetch).partitions[0].offset == 9
    broker.lead(2)
    assert broker.ask(5, fetch).partitions[0].offset == 9
