"""Where the replicas of a topic go."""

from __future__ import annotations

from collections import Counter

import pytest

from lossless.core.placement import NotEnoughBrokers, place

THREE = dict.fromkeys((1, 2, 3))
SIX = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


@pytest.mark.parametrize("racks", [THREE, SIX, {1: "a", 2: None, 3: "b", 4: "a"}])
@pytest.mark.parametrize("replication_factor", [1, 2, 3])
def test_no_broker_has_two_replicas_of_a_partition(
    racks: dict[int, str | None], replication_factor: int
) -> None:
    """B2."""
    for replicas in place(racks, 20, replication_factor):
        assert len(set(replicas)) == len(replicas) == replication_factor
        assert set(replicas) <= set(racks)


def test_leaders_spread_over_all_brokers() -> None:
    leaders = Counter(replicas[0] for replicas in place(SIX, 12, 3))
    assert leaders == dict.fromkeys(SIX, 2)


def test_the_followers_of_a_leader_are_others_after_every_turn() -> None:
    by_leader = [replicas for replicas in place(THREE, 6, 2) if replicas[0] == 1]
    assert by_leader == [(1, 2), (1, 3)]


@pytest.mark.parametrize("replication_factor", [2, 3])
def test_every_replica_of_a_partition_is_in_another_rack_while_there_are_racks(
    replication_factor: int,
) -> None:
    """B2: the loss of a rack leaves a replica of everything."""
    for replicas in place(SIX, 24, replication_factor):
        assert len({SIX[broker] for broker in replicas}) == replication_factor


def test_with_more_replicas_than_racks_every_rack_has_one() -> None:
    racks = {1: "a", 2: "a", 3: "a", 4: "b"}
    for replicas in place(racks, 8, 3):
        assert {racks[broker] for broker in replicas} == {"a", "b"}


def test_one_broker_has_everything() -> None:
    assert place({7: None}, 3, 1) == ((7,), (7,), (7,))


def test_who_is_away_leads_nothing_and_comes_last() -> None:
    assert place(THREE, 4, 2, away={2}) == ((1, 3), (3, 1), (1, 3), (3, 1))
    assert place(THREE, 4, 3, away={2}) == ((1, 3, 2), (3, 1, 2), (1, 3, 2), (3, 1, 2))
    assert place(THREE, 2, 3, away={1, 3}) == ((2, 3, 1), (2, 1, 3))


def test_another_rack_counts_for_more_than_who_is_away() -> None:
    for replicas in place(SIX, 12, 3, away={1, 2}):  # all of rack a
        assert {SIX[broker] for broker in replicas} == {"a", "b", "c"}
        assert SIX[replicas[-1]] == "a"


def test_without_anybody_to_lead_there_is_no_place() -> None:
    with pytest.raises(NotEnoughBrokers, match="no broker is there to lead"):
        place(THREE, 1, 1, away={1, 2, 3})


@pytest.mark.parametrize("replication_factor", [0, 4])
def test_more_replicas_than_brokers_and_less_than_one_are_refused(replication_factor: int) -> None:
    with pytest.raises(NotEnoughBrokers, match="there are 3"):
        place(THREE, 1, replication_factor)
