"""A replica that a broker has lost begins anew, and does not lead before it is in sync again."""

from __future__ import annotations

from machines import led_by

from lossless.core.lost_replicas import LostReplicas, undamaged
from lossless.core.messages import NO_LEADER
from lossless.log.checkpoints import DAMAGED
from lossless.log.memory import MemoryStore

NAME = "orders-0.1"


def damaged() -> MemoryStore:
    store = MemoryStore()
    store.replace("00.log", b"batches")
    store.replace(DAMAGED, b"a flipped bit")
    return store


def test_a_log_that_is_whole_stays_as_it_is() -> None:
    store, node = MemoryStore(), MemoryStore()
    store.replace("00.log", b"batches")
    lost = LostReplicas(node)
    assert lost.undamaged(NAME, store).names() == ["00.log"]
    assert undamaged(store).names() == ["00.log"]
    assert lost.told(NAME, 1, led_by(1, 0)) == led_by(1, 0)
    assert node.names() == []


def test_a_damaged_log_is_set_aside() -> None:
    store = damaged()
    assert undamaged(store).names() == []
    assert store.aside[0]["00.log"] == b"batches"


def test_who_has_lost_a_replica_is_not_told_that_it_leads() -> None:
    node = MemoryStore()
    lost = LostReplicas(node)
    assert lost.undamaged(NAME, damaged()).names() == []
    for known in (lost, LostReplicas(node)):  # in this life and in the next
        assert known.told(NAME, 1, led_by(1, 5)) == led_by(NO_LEADER, 5)
        assert known.told("orders-1.1", 1, led_by(1, 5)) == led_by(1, 5)


def test_who_was_in_sync_under_another_leader_may_lead_again() -> None:
    node = MemoryStore()
    lost = LostReplicas(node)
    lost.undamaged(NAME, damaged())
    following = led_by(2, 5, isr=(2, 3))
    assert lost.told(NAME, 1, following) == following
    assert lost.told(NAME, 1, led_by(1, 6)).leader == NO_LEADER
    joined = led_by(2, 7)
    assert lost.told(NAME, 1, joined) == joined
    for known in (lost, LostReplicas(node)):
        assert known.told(NAME, 1, led_by(1, 8)) == led_by(1, 8)
