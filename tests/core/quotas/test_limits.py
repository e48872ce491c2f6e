"""Limits of clients: which of them counts for whom."""

from __future__ import annotations

import pytest

from lossless.core.quotas.limits import (
    PRODUCED,
    Entity,
    Limit,
    changed,
    entity_of,
    limit_of,
    limit_of_address,
)

# In the order in which they count; the value says which one did.
ORDER: tuple[tuple[Entity, tuple[str, str]], ...] = (
    (entity_of([("user", "alice"), ("client-id", "shop")]), ("alice", "shop")),
    (entity_of([("user", "alice"), ("client-id", None)]), ("alice", "shop")),
    (entity_of([("user", "alice")]), ("alice", "")),
    (entity_of([("user", None), ("client-id", "shop")]), ("alice", "shop")),
    (entity_of([("user", None), ("client-id", None)]), ("alice", "shop")),
    (entity_of([("user", None)]), ("alice", "")),
    (entity_of([("client-id", "shop")]), ("", "shop")),
    (entity_of([("client-id", None)]), ("", "shop")),
)


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_the_first_entity_that_has_a_limit_counts(first: int) -> None:
    limits = {entity: {PRODUCED: float(at)} for at, (entity, _) in enumerate(ORDER) if at >= first}
    (_, shared) = ORDER[first]
    assert limit_of(limits, PRODUCED, "alice", "shop") == Limit(float(first), *shared)


def test_an_entity_without_a_limit_for_the_key_does_not_count() -> None:
    limits = {ORDER[0][0]: {"consumer_byte_rate": 1.0}, ORDER[6][0]: {PRODUCED: 2.0}}
    assert limit_of(limits, PRODUCED, "alice", "shop") == Limit(2.0, "", "shop")
    assert limit_of(limits, PRODUCED, "alice", "other") is None


def test_a_request_without_a_client_id_has_the_limit_of_its_user_alone() -> None:
    limits = {ORDER[7][0]: {PRODUCED: 1.0}, ORDER[4][0]: {PRODUCED: 2.0}}
    assert limit_of(limits, PRODUCED, "alice", "") is None
    limits[ORDER[5][0]] = {PRODUCED: 3.0}
    assert limit_of(limits, PRODUCED, "alice", "") == Limit(3.0, "alice", "")


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    limits = {(("ip", None),): {"connection_creation_rate": 5.0}}
    assert limit_of_address({}, "10.0.0.1") is None
    assert limit_of_address(limits, "10.0.0.1") == 5.0
    limits[(("ip", "10.0.0.1"),)] = {"connection_creation_rate": 1.0}
    assert limit_of_address(limits, "10.0.0.1") == 1.0


def test_an_entity_is_forgotten_with_its_last_limit() -> None:
    entity: Entity = (("user", "alice"),)
    limits = changed({}, entity, PRODUCED, 1.0)
    limits = changed(limits, entity, "request_percentage", 2.0)
    assert limits == {entity: {PRODUCED: 1.0, "request_percentage": 2.0}}
    assert changed(limits, entity, PRODUCED, None) == {entity: {"request_percentage": 2.0}}
    assert changed({entity: {PRODUCED: 1.0}}, entity, PRODUCED, None) == {}
