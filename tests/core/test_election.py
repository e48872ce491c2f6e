"""Who leads: a function of who is in sync, who is eligible and who is active."""

from __future__ import annotations

from typing import Any

import pytest
from machines import without

from lossless.core.election import changed
from lossless.core.messages import NO_LEADER
from lossless.core.metadata import PartitionState
from lossless.log.rules import RULES, Rules

REPLICAS = (1, 2, 3)
NO_ELR = without("eligible_leader_replicas")


def state(
    leader: int,
    isr: tuple[int, ...],
    *,
    elr: tuple[int, ...] = (),
    last_known: int = NO_LEADER,
    epochs: tuple[int, int] = (5, 8),
) -> PartitionState:
    return PartitionState(REPLICAS, isr, leader, *epochs, elr, last_known)


def after(
    before: PartitionState,
    *active: int,
    min_isr: int = 1,
    rules: Rules = RULES,
    **change: Any,
) -> PartitionState | None:
    return changed(before, is_active=active.__contains__, min_isr=min_isr, rules=rules, **change)


ALL_IN_SYNC = state(1, REPLICAS)


def test_nothing_changes_without_a_reason() -> None:
    assert after(ALL_IN_SYNC, 1, 2, 3) is None
    assert after(ALL_IN_SYNC, 1, 2, 3, isr=REPLICAS) is None
    assert after(state(NO_LEADER, (), elr=(1,)), 2, 3, min_isr=2) is None


def test_another_in_sync_set_is_another_partition_epoch_and_the_same_leader_epoch() -> None:
    assert after(ALL_IN_SYNC, 1, 2, 3, isr=(1, 3)) == state(1, (1, 3), epochs=(5, 9))


def test_another_leader_is_another_leader_epoch() -> None:
    assert after(ALL_IN_SYNC, 2, 3, isr=(2, 3)) == state(2, (2, 3), epochs=(6, 9))


def test_the_first_replica_in_sync_that_is_active_leads() -> None:
    """R3."""
    found = after(ALL_IN_SYNC, 3, isr=(2, 3))
    assert found is not None
    assert (found.leader, found.isr) == (3, (2, 3))


def test_a_leader_stays_as_long_as_it_may() -> None:
    """B8: the preferred one does not take the lead back by itself."""
    assert after(state(2, (2, 3)), 1, 2, 3, isr=(1, 2, 3)) == state(2, (1, 2, 3), epochs=(5, 9))


def test_the_preferred_leader_leads_when_it_is_asked_for_and_in_sync() -> None:
    assert after(state(2, REPLICAS), 1, 2, 3, prefer=1) == state(1, REPLICAS, epochs=(6, 9))
    assert after(state(2, (2, 3)), 1, 2, 3, prefer=1) is None
    assert after(state(2, REPLICAS), 2, 3, prefer=1) is None


# Nobody in sync is left


def test_a_partition_whose_last_in_sync_is_gone_has_no_leader() -> None:
    """B3, with unclean elections off; others may be active."""
    found = after(state(1, (1,)), 2, 3, isr=(), min_isr=1)
    assert found == state(NO_LEADER, (), elr=(1,), last_known=1, epochs=(6, 9))


def test_without_eligible_leaders_the_last_member_stays_in_the_set() -> None:
    found = after(state(1, (1,)), 2, 3, isr=(), rules=NO_ELR)
    assert found == state(NO_LEADER, (1,), epochs=(6, 9))
    assert after(found, 1, 2, 3, rules=NO_ELR) == state(1, (1,), epochs=(7, 10))


def test_an_unclean_election_takes_any_active_replica_and_it_alone() -> None:
    """B3: what only the others had is lost."""
    before = state(NO_LEADER, (), elr=(1,), last_known=1)
    found = after(before, 3, min_isr=2, may_be_unclean=True)
    assert found == state(3, (3,), last_known=1, epochs=(6, 9))


def test_an_unclean_election_prefers_whoever_has_everything() -> None:
    before = state(NO_LEADER, (), elr=(3,), last_known=1)
    found = after(before, 1, 2, 3, min_isr=2, may_be_unclean=True)
    assert found is not None
    assert (found.leader, found.isr) == (3, (3,))


def test_no_election_finds_a_leader_where_nobody_is_active() -> None:
    found = after(ALL_IN_SYNC, isr=(), may_be_unclean=True, min_isr=2)
    assert found == state(NO_LEADER, (), elr=REPLICAS, last_known=1, epochs=(6, 9))


def test_without_eligible_leaders_an_unclean_election_drops_the_last_in_sync() -> None:
    found = after(state(NO_LEADER, (1,)), 2, rules=NO_ELR, may_be_unclean=True)
    assert found == state(2, (2,), epochs=(6, 9))


# Eligible leaders (KIP-966)


def test_who_leaves_a_set_that_is_too_small_is_eligible() -> None:
    """Nothing is committed from then on, so it has all that is."""
    found = after(state(1, (1, 2)), 1, isr=(1,), min_isr=2)
    assert found == state(1, (1,), elr=(2,), epochs=(5, 9))


def test_who_leaves_a_set_that_is_large_enough_is_not_eligible() -> None:
    assert after(ALL_IN_SYNC, 1, 2, isr=(1, 2), min_isr=2) == state(1, (1, 2), epochs=(5, 9))


def test_nobody_is_eligible_once_the_set_is_large_enough_again() -> None:
    before = state(1, (1,), elr=(2,))
    assert after(before, 1, 3, isr=(1, 3), min_isr=2) == state(1, (1, 3), epochs=(5, 9))


def test_who_is_eligible_leads_when_nobody_in_sync_can() -> None:
    before = state(1, (1,), elr=(2,))
    found = after(before, 2, 3, isr=(), min_isr=2)
    assert found == state(2, (2,), elr=(1,), epochs=(6, 9))


def test_who_stopped_uncleanly_is_eligible_no_more() -> None:
    """R16: it may have lost what was not flushed."""
    found = after(state(1, (1,), elr=(2,)), 1, min_isr=2, uncleanly_stopped=2)
    assert found == state(1, (1,), epochs=(5, 9))
    found = after(state(1, (1, 2)), 1, isr=(1,), min_isr=2, uncleanly_stopped=2)
    assert found == state(1, (1,), epochs=(5, 9))


@pytest.mark.parametrize(("rules", "leader"), [(RULES, 2), (NO_ELR, 1)], ids=["on", "off"])
def test_the_last_in_sync_does_not_lead_with_less_while_somebody_has_all(
    rules: Rules, leader: int
) -> None:
    """R16: 2 stops, then 1 loses power, comes back with less, and 2 comes back after it."""
    steps: list[tuple[tuple[int, ...], dict[str, Any]]] = [
        ((1,), {"isr": (1,)}),
        ((), {"isr": ()}),
        ((), {"isr": (), "uncleanly_stopped": 1}),
        ((2,), {}),
        ((1, 2), {}),
    ]
    now = state(1, (1, 2))
    for active, change in steps:
        now = after(now, *active, min_isr=2, rules=rules, **change) or now
    assert (now.leader, now.isr) == (leader, (leader,))


def test_the_last_known_leader_leads_again_if_nobody_is_eligible() -> None:
    """R16: all that had everything stopped uncleanly. At min.insync.replicas=1 one is enough."""
    now = after(state(1, (1,)), isr=())
    assert now == state(NO_LEADER, (), elr=(1,), last_known=1, epochs=(6, 9))
    now = after(now, uncleanly_stopped=1)
    assert now == state(NO_LEADER, (), last_known=1, epochs=(6, 10))
    assert after(now, 2, 3) is None
    assert after(now, 1, 2, 3) == state(1, (1,), epochs=(7, 11))


def test_the_last_known_leader_does_not_lead_while_somebody_away_has_everything() -> None:
    """R16: it lost its disk, and who is eligible is not back yet."""
    assert after(state(NO_LEADER, (), elr=(2,), last_known=1), 1, 3, min_isr=2) is None
    assert after(state(NO_LEADER, (2,), last_known=1), 1, 3, min_isr=2) is None


def test_a_last_known_leader_is_remembered_until_the_set_is_large_enough() -> None:
    now = after(state(NO_LEADER, (), last_known=1), 1, min_isr=2)
    assert now == state(1, (1,), last_known=1, epochs=(6, 9))
    assert after(now, 1, 2, isr=(1, 2), min_isr=2) == state(1, (1, 2), epochs=(6, 10))


def test_without_eligible_leaders_nobody_is_led_by_the_last_known() -> None:
    assert after(state(NO_LEADER, (), last_known=1), 1, rules=NO_ELR) is None


def test_who_leaves_the_set_last_is_eligible_before_a_leader_that_was_known_earlier() -> None:
    """Broker 1 led, died uncleanly and is back with less; 2 led since, alone, and leaves now."""
    alone = PartitionState((1, 2, 3), (2,), 2, 2, 5, last_known_leader=1)
    left = changed(alone, isr=(), is_active=lambda broker: broker == 1, min_isr=2, rules=RULES)
    assert left is not None
    assert (left.leader, left.elr) == (NO_LEADER, (2,))
