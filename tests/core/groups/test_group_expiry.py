"""Offsets that nobody needs any more go after a while (KIP-211)."""

from __future__ import annotations

import pytest
from group_host import (
    GROUP,
    ORDERS_0,
    ORDERS_1,
    PAYMENTS_0,
    SESSION_MS,
    Host,
    joining,
)

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import OffsetToCommit, TxnOffsetCommit
from lossless.core.groups.records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from lossless.core.messages import Error, Producer

MINUTE_MS = 60_000
CONFIG = GroupConfig(
    initial_rebalance_delay_ms=0,
    offsets_retention_minutes=10,
    offsets_retention_check_interval_ms=MINUTE_MS,
)


@pytest.fixture
def host() -> Host:
    return Host(CONFIG)


def pass_minutes(host: Host, minutes: int, *alive: str) -> None:
    for _ in range(minutes * MINUTE_MS // 5_000):
        host.pass_ms(5_000)
        for member in alive:
            assert host.beat(member) is Error.NONE


def test_offsets_of_a_group_without_members_expire_one_by_one(host: Host) -> None:
    host.commit(ORDERS_0)
    pass_minutes(host, 5)
    host.commit(ORDERS_1)
    pass_minutes(host, 4)
    assert host.fetched(ORDERS_0) == 5
    pass_minutes(host, 1)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (-1, 5)
    pass_minutes(host, 5)
    assert host.fetched(ORDERS_1) == -1


def test_a_group_goes_with_its_last_offset(host: Host) -> None:
    host.commit()
    pass_minutes(host, 9)
    assert host.state() == "Empty"
    pass_minutes(host, 1)
    assert host.state() is None
    assert host.written()[-2:] == [
        (OffsetCommitKey(GROUP, "orders", 0), None),
        (GroupMetadataKey(GROUP), None),
    ]


def test_a_commit_makes_an_offset_young_again(host: Host) -> None:
    host.commit()
    pass_minutes(host, 9)
    host.commit()
    pass_minutes(host, 9)
    assert host.fetched() == 5


def test_offsets_of_topics_that_members_read_do_not_expire(host: Host) -> None:
    (member,) = host.stable("a")
    said = {"member_id": member, "generation_id_or_member_epoch": 1}
    host.commit(ORDERS_0, **said)
    host.commit(PAYMENTS_0, **said)
    pass_minutes(host, 20, member)
    assert (host.fetched(ORDERS_0), host.fetched(PAYMENTS_0)) == (5, -1)


def test_offsets_of_a_group_that_has_become_empty_expire_together_counted_from_then(
    host: Host,
) -> None:
    (member,) = host.stable("a")
    said = {"member_id": member, "generation_id_or_member_epoch": 1}
    host.commit(ORDERS_0, **said)
    pass_minutes(host, 20, member)
    host.leave(member)
    host.commit(ORDERS_1)
    pass_minutes(host, 9)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (5, 5)
    pass_minutes(host, 1)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (-1, -1)


def test_since_when_a_group_is_empty_survives_a_failover(host: Host) -> None:
    (member,) = host.stable("a")
    host.commit(member_id=member, generation_id_or_member_epoch=1)
    pass_minutes(host, 20, member)
    host.leave(member)
    pass_minutes(host, 5)
    host.fail_over()
    pass_minutes(host, 4)
    assert host.fetched() == 5
    pass_minutes(host, 1)
    assert host.fetched() == -1


def test_of_a_group_that_does_not_say_since_when_it_is_empty_each_commit_counts(
    host: Host,
) -> None:
    host.write(GroupMetadataKey(GROUP), GroupMetadataValue("consumer", 1, None, None, -1, ()))
    host.commit()
    pass_minutes(host, 9)
    assert host.fetched() == 5
    pass_minutes(host, 1)
    assert host.fetched() == -1


def test_nothing_expires_while_a_group_rebalances(host: Host) -> None:
    said = {"rebalance_timeout_ms": 60 * MINUTE_MS}
    first, second = host.stable("a", "b", **said)
    as_member = {"member_id": second, "generation_id_or_member_epoch": 1}
    host.commit(PAYMENTS_0, **as_member)
    host.join(first, **said)
    for _ in range(20 * MINUTE_MS // 5_000):
        host.pass_ms(5_000)
        assert host.beat(second) is Error.REBALANCE_IN_PROGRESS
    assert host.fetched(PAYMENTS_0) == 5


def test_nothing_expires_if_what_members_read_is_not_known(host: Host) -> None:
    (member,) = host.stable("a", protocol_type="connect")
    host.commit(PAYMENTS_0, member_id=member, generation_id_or_member_epoch=1)
    pass_minutes(host, 20, member)
    assert host.fetched(PAYMENTS_0) == 5


def test_a_commit_that_says_how_long_it_counts_is_kept_that_long(host: Host) -> None:
    host.commit(ORDERS_0, retention_time_ms=3 * MINUTE_MS, api_version=4)
    host.commit(ORDERS_1, retention_time_ms=30 * MINUTE_MS, api_version=4)
    pass_minutes(host, 2)
    assert host.fetched(ORDERS_0) == 5
    host.fail_over()
    pass_minutes(host, 1)
    assert host.fetched(ORDERS_0) == -1
    pass_minutes(host, 26)
    assert host.fetched(ORDERS_1) == 5
    pass_minutes(host, 1)
    assert host.fetched(ORDERS_1) == -1


def test_offsets_are_looked_at_as_often_as_the_setting_says() -> None:
    host = Host(
        GroupConfig(offsets_retention_minutes=1, offsets_retention_check_interval_ms=5 * MINUTE_MS)
    )
    host.commit()
    pass_minutes(host, 4)
    assert host.fetched() == 5
    pass_minutes(host, 1)
    assert host.fetched() == -1


def test_an_offset_whose_successor_is_pending_does_not_expire(host: Host) -> None:
    host.commit(ORDERS_0)
    host.commit(ORDERS_1)
    producer = Producer(7, 0)
    host.ask(TxnOffsetCommit(GROUP, (OffsetToCommit(ORDERS_0, 9),), producer))
    pass_minutes(host, 30)
    assert (host.fetched(ORDERS_0), host.fetched(ORDERS_1)) == (5, -1)
    host.end_transaction(producer, committed=False)
    pass_minutes(host, 1)
    assert host.state() is None


def test_a_group_with_nothing_but_pending_offsets_is_kept(host: Host) -> None:
    producer = Producer(7, 0)
    host.ask(TxnOffsetCommit(GROUP, (OffsetToCommit(ORDERS_0, 9),), producer))
    pass_minutes(host, 30)
    assert host.state() == "Empty"
    host.end_transaction(producer, committed=True)
    assert host.fetched() == 9


def test_a_group_to_which_somebody_was_about_to_come_goes_too(host: Host) -> None:
    member = host.ask(joining(session_timeout_ms=1_800_000)).member_id
    pass_minutes(host, 1)
    assert host.state() is None
    assert host.ask(joining(member)).error is Error.UNKNOWN_MEMBER_ID
    pass_minutes(host, 60)  # its session ends, and nobody misses it


def test_a_group_with_members_and_no_offsets_is_kept(host: Host) -> None:
    (member,) = host.stable("a")
    pass_minutes(host, 20, member)
    assert host.state() == "Stable"
    host.pass_ms(SESSION_MS)
    assert host.state() == "Empty"


def test_the_log_says_how_old_an_offset_is(host: Host) -> None:
    value = OffsetCommitValue(5, commit_timestamp_ms=host.now_ms - 10 * MINUTE_MS)
    host.write(OffsetCommitKey(GROUP, "orders", 0), value)
    pass_minutes(host, 1)
    assert host.fetched() == -1
