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
from lossless.log.batch import Batch, Marker, MarkerKind, Record, build, build_marker
from lossless.log.index import AbortedTransaction
from lossless.log.leader_epochs import EpochEnd
from lossless.simulator.clients.consumer import Consumer, Offset, Offsets
from lossless.simulator.clients.leaders import Leaders
from lossless.simulator.settings import ConsumerSettings
from lossless.verifier.history import Event, Read, Reset

PARTITION = TopicPartition("orders", 0)
LEADER = PartitionLeader(PARTITION, 1, 5)


class Hosted:
    """A consumer of a group that has committed offset 3, after a record of epoch 2."""

    def __init__(self, settings: ConsumerSettings | None = None) -> None:
        self.events: list[Event] = []
        self.offsets: Offsets = {("c1", PARTITION): Offset(3, 2)}
        self.consumer = Consumer(
            "c1",
            "c1",
            settings or ConsumerSettings(),
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


def test_a_reader_of_committed_records_leaves_out_what_was_aborted_and_no_more() -> None:
    """Producer 7 aborts offset 3, whose marker is at 5, and begins again at 6."""
    host = Hosted(ConsumerSettings(isolation="read_committed"))
    data = b"".join(
        batch.placed(offset, 5).data
        for offset, batch in (
            (3, _sent(b"aborted", 7)),
            (4, _sent(b"of another", 8)),
            (5, _ended(7)),
            (6, _sent(b"of the next", 7)),
        )
    )
    aborted = (AbortedTransaction(7, 3, 5, 6),)
    host.answered(Fetched(PARTITION, Error.NONE, 7, 7, aborted=aborted, data=data))
    read = [event.value for event in host.events if isinstance(event, Read)]
    assert read == ["of another", "of the next"]
    assert host.consumer.positions[PARTITION].offset == 7


def _sent(value: bytes, producer_id: int) -> Batch:
    record = Record(0, 0, None, value)
    return build([record], producer_id=producer_id, producer_epoch=0, transactional=True)


def _ended(producer_id: int) -> Batch:
    marker = Marker(MarkerKind.ABORT, 0)
    return build_marker(marker, offset=0, timestamp_ms=0, producer_id=producer_id, producer_epoch=0)


def test_it_commits_with_the_epoch_of_the_last_record() -> None:
    host = Hosted()
    data = build([Record(0, 0, None, b"v")]).placed(3, 5).data
    effects = host.answered(Fetched(PARTITION, Error.NONE, 4, data=data))
    assert effects.wake_ms is not None
    host.consumer.on_timer(effects.wake_ms)
    assert host.offsets == {("c1", PARTITION): Offset(4, 5)}
