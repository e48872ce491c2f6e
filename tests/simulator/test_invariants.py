"""What coordinators write down is looked at, and what must not be names itself."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from lossless.core.broker import Broker
from lossless.core.controller_node import ControllerNode
from lossless.core.groups.messages import (
    NO_OFFSET,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetFetched,
    OffsetToCommit,
    PartitionError,
)
from lossless.core.messages import OFFSETS_TOPIC, Error, TopicPartition, WriteTxnMarker
from lossless.core.replica import Replica, Role
from lossless.core.transactions.messages import (
    EndTxn,
    EndTxnAnswer,
    InitProducerId,
    InitProducerIdAnswer,
)
from lossless.log.batch import Record
from lossless.log.batch import build as build_batch
from lossless.log.log import Log
from lossless.log.memory import MemoryStore
from lossless.log.producers import Producer
from lossless.simulator.cluster import build
from lossless.simulator.coordinated import Commit, Generation
from lossless.simulator.exploring import explore
from lossless.simulator.invariants import Invariants
from lossless.simulator.options import changed, pairs_of
from lossless.simulator.run import Run
from lossless.simulator.settings import ProducerSettings, Settings
from lossless.simulator.world import World
from lossless.verifier.verdict import Verdict

PARTITION = TopicPartition("orders", 0)


def looking(transaction_version: int = 2) -> tuple[World, Invariants]:
    producer = ProducerSettings(transaction_version=transaction_version)
    world = build(replace(Settings(), producer=producer), 1)
    return world, Invariants(world)


def marker(epoch: int, committed: bool) -> WriteTxnMarker:
    return WriteTxnMarker(PARTITION, 7, epoch, 0, committed)


def test_a_partition_that_two_members_have_breaks_one_owner() -> None:
    world, invariants = looking()
    invariants._check_generation(Generation("g", 1, (("c1", (0, 1)), ("c2", (2,)))))
    assert world.broken == []
    invariants._check_generation(Generation("g", 2, (("c1", (0, 1)), ("c2", (1,)))))
    assert [broken.split(":")[0] for broken in world.broken] == ["OneOwner"]


def test_a_transaction_that_ends_in_two_ways_breaks_one_outcome() -> None:
    world, invariants = looking()
    for request in (marker(1, True), marker(1, True), marker(2, False)):
        invariants.check_coordinator(1, request)
    assert world.broken == []
    invariants.check_coordinator(1, marker(2, True))
    assert world.broken == ["OneOutcome: producer 7, epoch 2"]


def test_with_version_1_an_epoch_has_many_transactions() -> None:
    world, invariants = looking(transaction_version=1)
    invariants.check_coordinator(1, marker(1, True))
    invariants.check_coordinator(1, marker(1, False))
    assert world.broken == []


def test_what_coordinators_decide_is_told_in_words() -> None:
    identified = [(f"c{n}-{'x' * 36}", (n - 1,)) for n in (1, 2)]
    told = Generation("g", 4, (identified[0], (identified[1][0], ()))).told()
    assert told == "group g, generation 4: c1 has 0; c2 has nothing"
    assert Generation("g", 5, ()).told() == "group g is empty"
    assert Commit("g", PARTITION, 3).told() == "group g is at 3 of orders-0"
    assert Commit("g", PARTITION, None).told() == "group g no longer has an offset of orders-0"


def leading(epoch: int, coordinator_epoch: int) -> Replica:
    """A leader as far as its producers are concerned."""
    known = Producer(epoch, coordinator_epoch)
    log = SimpleNamespace(producers={7: known})
    leader = SimpleNamespace(role=Role.LEADER, partition=PARTITION, leader_epoch=1, log=log)
    return cast("Replica", leader)


@pytest.mark.parametrize(
    ("after", "broken"),
    [
        ((4, 2), []),
        ((5, 3), []),
        ((3, 2), ["ProducerFenced: broker 1, orders-0, producer 7: epoch 3 after 4"]),
        (
            (4, 1),
            ["CoordinatorFenced: broker 1, orders-0, producer 7: a marker of epoch 1 after 2"],
        ),
    ],
)
def test_epochs_of_producers_and_of_their_coordinators_only_rise(
    after: tuple[int, int], broken: list[str]
) -> None:
    world, invariants = looking()
    invariants._check_producers(1, leading(4, 2))
    invariants._check_producers(1, leading(*after))
    assert world.broken == broken


def node(epoch: int, values: int, high_watermark: int) -> ControllerNode:
    log = Log(MemoryStore())
    for _ in range(values):
        log.append(build_batch([Record(0, 0, None, b"x")]), leader_epoch=epoch, now_ms=0)
    quorum = SimpleNamespace(high_watermark=high_watermark)
    return cast("ControllerNode", SimpleNamespace(quorum=quorum, metadata_log=log))


def test_committed_metadata_that_is_replaced_breaks_metadata_stays() -> None:
    world, invariants = looking()
    invariants._check_metadata(101, 1, node(1, values=3, high_watermark=2))
    invariants._check_metadata(102, 1, node(1, values=2, high_watermark=2))
    invariants._check_metadata(102, 1, node(1, values=2, high_watermark=2))
    assert world.broken == []
    invariants._check_metadata(103, 1, node(2, values=2, high_watermark=1))
    assert world.broken == [
        (
            "MetadataStays: controller 3 has epoch 2 at offset 0 of the metadata, and epoch 1 was "
            "committed there"
        )
    ]


def test_a_group_that_does_not_find_what_was_acknowledged_to_it_breaks_offsets_stay() -> None:
    world, invariants = looking()
    offsets = invariants._offsets
    offsets._coordinates = lambda _broker, _group: True  # type: ignore[method-assign]
    broker = cast("Broker", None)

    def commit(offset: int, error: Error = Error.NONE) -> None:
        request = OffsetCommit("g", (OffsetToCommit(PARTITION, offset),))
        requests.append(request)
        offsets.on_request(1, broker, request)
        invariants.check_answer(request, OffsetCommitAnswer((PartitionError(PARTITION, error),)))

    def fetch(offset: int) -> None:
        request = OffsetFetch("g", (PARTITION,))
        requests.append(request)
        offsets.on_request(1, broker, request)
        fetched = OffsetFetched(PARTITION, offset=offset)
        invariants.check_answer(request, OffsetFetchAnswer(Error.NONE, "g", (fetched,)))

    requests: list[object] = []
    fetch(NO_OFFSET)  # nothing was committed yet
    commit(3)
    commit(5)
    commit(6, Error.REQUEST_TIMED_OUT)  # it may be written nevertheless
    fetch(5)
    fetch(6)
    assert world.broken == []
    fetch(3)
    fetch(NO_OFFSET)
    assert world.broken == [
        "OffsetsStay: group g finds 3 for orders-0, and 5 was acknowledged to it",
        "OffsetsStay: group g finds nothing for orders-0, and 5 was acknowledged to it",
    ]


def test_the_topics_of_coordinators_are_compacted_where_the_settings_say_so() -> None:
    settings = changed(
        Settings(), pairs_of("groups=1 compaction=true segment-bytes=300", "here"), "here"
    )
    run = Run(settings, 1)
    run.run()
    brokers = [process.machine for process in run.world.processes.values()]
    logs = {
        partition.topic: replica.log
        for broker in brokers
        if isinstance(broker, Broker)
        for partition, replica in broker.replicas.items()
        if replica.log.log_end_offset
    }
    kept = {
        topic: sum(batch.records_count for batch in log.batches()) for topic, log in logs.items()
    }
    assert kept["orders"] == logs["orders"].log_end_offset
    assert kept[OFFSETS_TOPIC] < logs[OFFSETS_TOPIC].log_end_offset


def test_a_commit_is_not_held_against_another_request_once_a_controller_is_back() -> None:
    """While no controller says who coordinates, nothing is looked at; then all of it at once."""
    text = (
        "brokers=1 rf=1 min-isr=1 client=java idempotent=true producers=2 consumers=1 groups=1 "
        "faults-max=8 faults=controller-crash,broker-pause"
    )
    settings = changed(Settings(), pairs_of(text, "here"), "here")
    exploration = explore(settings, range(1, 41), ["OwnerCommits"])
    assert (exploration.verdict, exploration.occurred) == (Verdict.UNREFUTED, {})


def test_a_controller_that_forgets_its_vote_breaks_one_vote() -> None:
    world, invariants = looking()

    def votes(life: int, epoch: int, candidate: int | None) -> None:
        quorum = SimpleNamespace(epoch=epoch, voted=candidate)
        node = cast(ControllerNode, SimpleNamespace(quorum=quorum))
        invariants._check_vote(101, life, node)

    votes(1, 1, None)
    votes(1, 1, 102)
    votes(2, 1, 102)
    votes(2, 2, 103)
    assert world.broken == []
    votes(3, 2, None)
    assert world.broken == [
        "OneVote: in epoch 2 controller 1 voted for controller 3, and later for nobody"
    ]


def test_a_producer_that_starts_with_an_epoch_given_before_breaks_one_producer() -> None:
    world, invariants = looking()
    start, end = InitProducerId("p1", 1000), EndTxn("p1", 7, 0, True)
    invariants.check_answer(start, InitProducerIdAnswer(Error.NONE, 7, 0))
    invariants.check_answer(end, EndTxnAnswer(Error.NONE, 7, 1))
    invariants.check_answer(start, InitProducerIdAnswer(Error.CONCURRENT_TRANSACTIONS))
    invariants.check_answer(start._replace(producer_id=7), InitProducerIdAnswer(Error.NONE, 7, 1))
    invariants.check_answer(start, InitProducerIdAnswer(Error.NONE, 7, 2))
    assert world.broken == []
    invariants.check_answer(start, InitProducerIdAnswer(Error.NONE, 7, 1))
    assert world.broken == ["OneProducer: p1 starts as producer 7, epoch 1, as one before it did"]
