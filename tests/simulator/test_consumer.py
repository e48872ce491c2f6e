"""The model of a consumer, where truncation meets it: what it asks, and where it goes."""

from __future__ import annotations

from lossless.core.machine import Effects
from lossless.core.messages import (
    UNKNOWN_EPOCH,
    Error,
    Fetch,
    FetchAnswer,
    Fetched,
    FetchPartition,
    Metadata,
    MetadataAnswer,
    PartitionLeader,
    TopicPartition,
)
from lossless.log.batch import Record, build
from lossless.log.leader_epochs import EpochEnd
from lossless.simulator.clients.consumer import Consumer, Offset, Offsets
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.settings import ConsumerSettings
from lossless.verifier.history import Event, Reset

PARTITION = TopicPartition("orders", 0)
LEADER = PartitionLeader(PARTITION, 1, 5)


class Hosted:
    """A consumer of a group that has committed offset 3, after a record of epoch 2."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.offsets: Offsets = {("c1", PARTITION): Offset(3, 2)}
        self.consumer = Consumer(
            "c1",
            "c1",
            ConsumerSettings(),
            (PARTITION,),
            Leaders("orders", 3, 1),
            offsets=self.offsets,
            tell=self.events.append,
        )
        self.consumer.on_start(0)
        known = MetadataAnswer((LEADER,))
        self.effects = self.consumer.on_answer(1, Metadata(("orders",)), known, 1)

    def asked(self) -> FetchPartition:
        (fetch,) = (sent.request for sent in self.effects.send if isinstance(sent.request, Fetch))
        (only,) = fetch.partitions
        return only

    def answered(self, fetched: Fetched) -> Effects:
        (fetch,) = (sent.request for sent in self.effects.send if isinstance(sent.request, Fetch))
        self.effects = self.consumer.on_answer(1, fetch, FetchAnswer((fetched,)), 2)
        return self.effects


def test_it_goes_on_where_its_group_is_and_tells_the_epoch_of_the_record_before() -> None:
    assert Hosted().asked()[:4] == (PARTITION, 3, 5, 2)


def test_it_goes_back_to_where_a_shorter_history_ends() -> None:
    host = Hosted()
    host.answered(Fetched(PARTITION, Error.NONE, diverging=EpochEnd(1, 2)))
    assert host.asked()[:4] == (PARTITION, 2, 5, UNKNOWN_EPOCH)
    assert host.events[-1] == Reset(2, "c1", PARTITION, 3, 2, "truncation detected")


def test_it_takes_a_history_that_is_no_shorter_for_its_own() -> None:
    host = Hosted()
    told = len(host.events)
    host.answered(Fetched(PARTITION, Error.NONE, diverging=EpochEnd(1, 3)))
    assert host.asked()[:4] == (PARTITION, 3, 5, UNKNOWN_EPOCH)
    assert len(host.events) == told


def test_it_commits_with_the_epoch_of_the_last_record() -> None:
    host = Hosted()
    data = build([Record(0, 0, None, b"v")]).placed(3, 5).data
    effects = host.answered(Fetched(PARTITION, Error.NONE, 4, data=data))
    assert effects.wake_ms is not None
    host.consumer.on_timer(effects.wake_ms)
    assert host.offsets == {("c1", PARTITION): Offset(4, 5)}
