"""Classic groups: assignments, sessions, goodbyes, and what is left after a failover."""

from __future__ import annotations

import pytest
from group_host import GROUP, REBALANCE_MS, SESSION_MS, START_MS, Host, joining, subscription

from lossless.core.groups.messages import (
    Heartbeat,
    HeartbeatAnswer,
    LeaveGroup,
    LeaveGroupAnswer,
    MemberIdentity,
    MemberLeft,
    OffsetDelete,
    SyncGroup,
    SyncGroupAnswer,
)
from lossless.core.groups.records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
)
from lossless.core.messages import Error, TopicPartition

META = subscription("orders")


def joined(host: Host, *names: str) -> list[str]:
    """Members of a generation that has no assignment yet; the first leads."""
    members = [host.member(client_id=name) for name in names]
    host.pass_ms(0)
    return members


def woken_late(host: Host, duration_ms: int) -> None:
    """Nothing could be written for a while: whatever was due in that time comes at once."""
    host.now_ms += duration_ms
    host._act(host.shard.on_timer(host.now_ms))


# Syncing


def test_everybody_gets_what_the_leader_gave_it(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    waits = host.sync(follower)
    assert host.answer(waits) is None
    told = host.sync(leader, assignments={leader: b"0", follower: b"1"})
    assert host.synced(told) == SyncGroupAnswer(Error.NONE, "consumer", "range", b"0")
    assert host.synced(waits) == SyncGroupAnswer(Error.NONE, "consumer", "range", b"1")
    assert host.state() == "Stable"


def test_a_generation_is_written_down_with_its_assignment(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    host.sync(leader, assignments={leader: b"0", "stranger": b"?"})
    assert host.written() == [
        (
            GroupMetadataKey(GROUP),
            GroupMetadataValue(
                "consumer",
                1,
                "range",
                leader,
                START_MS,
                tuple(
                    GroupMetadataMember(
                        member, None, name, "/10.0.0.1", REBALANCE_MS, SESSION_MS, META, given
                    )
                    for member, name, given in ((leader, "a", b"0"), (follower, "b", b""))
                ),
            ),
        )
    ]


def test_who_syncs_when_the_group_is_stable_is_answered_at_once(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    host.sync(leader, assignments={follower: b"1"})
    assert host.synced(host.sync(follower)).assignment == b"1"
    assert host.synced(host.sync(leader)).assignment == b""


def test_a_sync_that_is_sent_again_takes_the_place_of_the_first(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    first, second = host.sync(follower), host.sync(follower)
    assert host.answer(first) == SyncGroupAnswer(Error.REBALANCE_IN_PROGRESS)
    host.sync(leader, assignments={follower: b"1"})
    assert host.synced(second).assignment == b"1"


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"group_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"group_instance_id": "i"}, Error.UNKNOWN_MEMBER_ID),
        ({"generation_id": 2}, Error.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "robin"}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_bad_sync_is_refused_and_changes_nothing(
    host: Host, said: dict[str, object], error: Error
) -> None:
    (leader,) = joined(host, "a")
    request = SyncGroup(GROUP, 1, leader, None, "consumer", "range", ((leader, b"0"),))
    assert host.ask(request._replace(**said)) == SyncGroupAnswer(error)
    assert host.state() == "CompletingRebalance"
    assert host.ask(request).error is Error.NONE


def test_a_sync_during_a_rebalance_is_told_to_join(host: Host) -> None:
    member, _ = host.stable("a", "b")
    host.join(member)
    assert host.synced(host.sync(member)) == SyncGroupAnswer(Error.REBALANCE_IN_PROGRESS)


def test_who_waits_for_an_assignment_is_told_when_there_will_be_none(host: Host) -> None:
    _, follower = joined(host, "a", "b")
    waits = host.sync(follower)
    host.join(host.ask(joining()).member_id)
    assert host.answer(waits) == SyncGroupAnswer(Error.REBALANCE_IN_PROGRESS)


def test_who_leaves_while_it_waits_for_an_assignment_is_answered(host: Host) -> None:
    _, follower = joined(host, "a", "b")
    waits = host.sync(follower)
    host.leave(follower)
    assert host.answer(waits) == SyncGroupAnswer(Error.UNKNOWN_MEMBER_ID)


def test_a_leader_that_never_assigns_is_removed(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    host.sync(follower)
    for _ in range(REBALANCE_MS // 5_000):
        assert host.beat(leader) is Error.NONE
        host.pass_ms(5_000)
    assert host.beat(leader) is Error.UNKNOWN_MEMBER_ID
    assert host.joined(host.join(follower)).leader == follower


def test_who_never_asks_for_its_part_is_removed_from_a_stable_group(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    host.sync(leader)
    for _ in range(REBALANCE_MS // 5_000):
        assert host.beat(follower) is Error.NONE
        host.beat(leader)
        host.pass_ms(5_000)
    assert host.beat(follower) is Error.UNKNOWN_MEMBER_ID
    assert host.beat(leader) is Error.REBALANCE_IN_PROGRESS


def test_nobody_is_waited_for_in_a_group_that_has_become_empty(host: Host) -> None:
    (member,) = joined(host, "a")
    host.leave(member)
    before = len(host.log)
    host.pass_ms(2 * REBALANCE_MS)
    assert host.state() == "Empty"
    assert len(host.log) == before


def test_a_session_begins_anew_when_there_will_be_no_assignment(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    host.sync(follower)
    for _ in range(3):
        host.pass_ms(5_000)
        host.beat(leader)
    host.join(leader, protocols=(("range", b"other"),))
    host.pass_ms(SESSION_MS - 1)
    assert host.state() == "PreparingRebalance"
    host.pass_ms(1)
    assert host.state() == "CompletingRebalance"
    assert host.beat(follower, 2) is Error.UNKNOWN_MEMBER_ID


# Heartbeats


def test_a_member_that_is_heard_of_stays(host: Host) -> None:
    (member,) = host.stable("a")
    for _ in range(5):
        host.pass_ms(SESSION_MS - 1)
        assert host.beat(member) is Error.NONE


def test_a_member_that_is_silent_is_removed_and_the_others_join_again(host: Host) -> None:
    member, _ = host.stable("a", "b")
    host.pass_ms(SESSION_MS - 1)
    assert host.beat(member) is Error.NONE
    host.pass_ms(1)
    assert host.beat(member) is Error.REBALANCE_IN_PROGRESS
    assert host.joined(host.join(member)).generation_id == 2


def test_heartbeats_count_while_the_leader_assigns(host: Host) -> None:
    (leader,) = joined(host, "a")
    assert host.beat(leader) is Error.NONE


def test_who_waits_for_an_assignment_needs_no_heartbeats_until_it_has_it(host: Host) -> None:
    leader, follower = joined(host, "a", "b")
    waits = host.sync(follower)
    for _ in range(3):
        host.pass_ms(SESSION_MS - 1)
        host.beat(leader)
    host.sync(leader)
    assert host.synced(waits).error is Error.NONE
    host.pass_ms(SESSION_MS - 1)
    assert host.beat(follower) is Error.NONE


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"group_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"member_id": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"generation_id": 0}, Error.ILLEGAL_GENERATION),
    ],
)
def test_a_bad_heartbeat_is_refused(host: Host, said: dict[str, object], error: Error) -> None:
    (member,) = host.stable("a")
    request = Heartbeat(GROUP, 1, member)
    assert host.ask(request._replace(**said)) == HeartbeatAnswer(error)


# Leaving


def test_who_leaves_makes_the_others_join_again(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    answer = host.leave(leader)
    assert answer == LeaveGroupAnswer(Error.NONE, (MemberLeft(MemberIdentity(leader), Error.NONE),))
    assert host.beat(follower) is Error.REBALANCE_IN_PROGRESS
    assert host.joined(host.join(follower)).leader == follower


def test_when_the_last_one_leaves_the_group_is_empty_and_that_is_written_down(host: Host) -> None:
    (member,) = host.stable("a")
    host.pass_ms(5)
    host.leave(member)
    assert host.state() == "Empty"
    assert host.written()[-1] == (
        GroupMetadataKey(GROUP),
        GroupMetadataValue("consumer", 2, None, None, START_MS + 5, ()),
    )


def test_several_leave_at_once_and_each_is_answered(host: Host) -> None:
    members = host.stable("a", "b", "c")
    answer = host.leave(members[0], "stranger", members[2])
    assert [left.error for left in answer.members] == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.NONE,
    ]
    assert host.joined(host.join(members[1])).members[0].member_id == members[1]


def test_a_rebalance_is_complete_when_the_one_it_waits_for_leaves(host: Host) -> None:
    member, late = host.stable("a", "b")
    token = host.join(member)
    host.leave(late)
    assert host.joined(token).generation_id == 2


def test_who_was_given_an_id_may_leave_without_joining(host: Host) -> None:
    (member,) = host.stable("a")
    pending = host.ask(joining()).member_id
    assert host.leave(pending).members[0].error is Error.NONE
    assert host.joined(host.join(member)).generation_id == 2
    assert host.ask(joining(pending)).error is Error.UNKNOWN_MEMBER_ID


def test_who_was_given_an_id_may_leave_a_group_that_has_no_members(host: Host) -> None:
    pending = host.ask(joining()).member_id
    assert host.leave(pending).members[0].error is Error.NONE
    assert host.state() == "Empty"


def test_a_stranger_that_leaves_changes_nothing(host: Host) -> None:
    (member,) = host.stable("a")
    assert host.leave("stranger").members[0].error is Error.UNKNOWN_MEMBER_ID
    assert host.beat(member) is Error.NONE


def test_nobody_can_leave_a_group_that_does_not_exist(host: Host) -> None:
    answer = host.leave("a", "b")
    assert [left.error for left in answer.members] == [Error.UNKNOWN_MEMBER_ID] * 2
    assert answer.error is Error.NONE
    assert host.ask(LeaveGroup("", ())) == LeaveGroupAnswer(Error.INVALID_GROUP_ID)


# Failover


def test_after_a_failover_the_members_go_on_with_heartbeats(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    host.fail_over()
    assert [host.beat(leader), host.beat(follower)] == [Error.NONE, Error.NONE]
    assert host.synced(host.sync(follower)).assignment == f"to {follower}".encode()


def test_after_a_failover_sessions_begin_anew(host: Host) -> None:
    (member,) = host.stable("a")
    host.pass_ms(SESSION_MS - 1)
    host.fail_over()
    host.pass_ms(SESSION_MS - 1)
    assert host.beat(member) is Error.NONE
    host.pass_ms(SESSION_MS)
    assert host.state() == "Empty"


def test_after_a_failover_a_rebalance_begins_again_from_the_last_generation(host: Host) -> None:
    (old,) = host.stable("a")
    new = host.ask(joining()).member_id
    host.join(new)
    host.fail_over()
    assert host.beat(old) is Error.NONE
    assert host.ask(joining(new)).error is Error.UNKNOWN_MEMBER_ID


def test_after_a_failover_an_empty_group_has_not_forgotten_its_generation(host: Host) -> None:
    (member,) = host.stable("a")
    host.leave(member)
    host.fail_over()
    token = host.join(host.ask(joining()).member_id)
    host.pass_ms(0)
    assert host.joined(token).generation_id == 3


def test_a_later_generation_replaces_the_earlier_one_when_the_log_is_read(host: Host) -> None:
    def stored(generation: int, said: bytes, *members: str) -> GroupMetadataValue:
        return GroupMetadataValue(
            "consumer",
            generation,
            "range",
            members[0],
            -1,
            tuple(
                GroupMetadataMember(one, None, "", "", -1, SESSION_MS, said, b"") for one in members
            ),
        )

    host.write(GroupMetadataKey(GROUP), stored(1, META, "a", "b"))
    host.write(GroupMetadataKey(GROUP), stored(2, subscription("payments"), "b"))
    host.fail_over()
    assert host.beat("a", 2) is Error.UNKNOWN_MEMBER_ID
    assert host.beat("b", 2) is Error.NONE
    answer = host.ask(OffsetDelete(GROUP, (TopicPartition("payments", 0),)))
    assert answer.partitions[0].error is Error.GROUP_SUBSCRIBED_TO_TOPIC
    # There was but one timeout once.
    token = host.join("b", protocols=(("range", META),))
    assert host.joined(token).members[0].metadata == META


# Late


def test_a_member_that_joins_when_all_timers_come_late_at_once_stays(host: Host) -> None:
    """The session of who did not come ends the rebalance, and with it the wait for the others."""
    host.stable("silent")
    newcomer = host.member(client_id="newcomer")
    woken_late(host, SESSION_MS + REBALANCE_MS)
    assert host.state() == "CompletingRebalance"
    told = host.sync(newcomer, 2, assignments={newcomer: b"0"})
    assert host.synced(told).error is Error.NONE
    host.pass_ms(SESSION_MS - 1)
    assert host.beat(newcomer, 2) is Error.NONE
