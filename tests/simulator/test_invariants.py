"""What coordinators write down is looked at, and what must not be names itself."""

from __future__ import annotations

from dataclasses import replace

from lossless.core.messages import TopicPartition, WriteTxnMarker
from lossless.simulator.cluster import build
from lossless.simulator.coordinated import Commit, Generation
from lossless.simulator.invariants import Invariants
from lossless.simulator.settings import ProducerSettings, Settings
from lossless.simulator.world import World

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
