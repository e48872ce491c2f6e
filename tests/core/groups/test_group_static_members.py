"""Classic groups: static members keep their place (KIP-345), and nobody else gets it."""

from __future__ import annotations

from group_host import GROUP, REBALANCE_MS, SESSION_MS, Host, joining, subscription

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import (
    JoinGroupAnswer,
    JoinGroupMember,
    MemberIdentity,
    MemberLeft,
    SyncGroup,
    SyncGroupAnswer,
)
from lossless.core.groups.records import GroupMetadataKey, GroupMetadataValue
from lossless.core.messages import Error

META = subscription("orders")


def static(host: Host, instance: str, member_id: str = "", **said: object) -> int:
    return host.join(member_id, group_instance_id=instance, **said)


def stable(host: Host, *instances: str, **said: object) -> list[str]:
    """The ids of static members, of which the first leads."""
    tokens = [static(host, instance, **said) for instance in instances]
    host.pass_ms(host.config.initial_rebalance_delay_ms)
    members = [host.joined(token).member_id for token in tokens]
    given = {member: instance.encode() for member, instance in zip(members, instances, strict=True)}
    for member in members[::-1]:
        host.sync(member, assignments=given)
    return members


def test_a_static_member_joins_with_its_first_request(host: Host) -> None:
    token = static(host, "i1")
    host.pass_ms(0)
    answer = host.joined(token)
    assert answer.member_id.startswith("i1-")
    assert answer.members == (JoinGroupMember(answer.member_id, "i1", META),)


def test_a_follower_that_is_back_gets_its_old_part_and_nobody_rebalances(host: Host) -> None:
    leader, old = stable(host, "i1", "i2")
    answer = host.answer(static(host, "i2"))
    new = answer.member_id
    assert new != old
    assert answer == JoinGroupAnswer(Error.NONE, new, 1, "consumer", "range", leader)
    assert host.state() == "Stable"
    assert host.synced(host.sync(new)).assignment == b"i2"


def test_the_new_id_is_written_down_before_it_is_told(host: Host) -> None:
    stable(host, "i1", "i2")
    before = len(host.log)
    new = host.answer(static(host, "i2")).member_id
    ((key, value),) = host.written(before)
    assert key == GroupMetadataKey(GROUP)
    assert isinstance(value, GroupMetadataValue)
    assert [member.member_id for member in value.members][1] == new
    host.fail_over()
    assert host.beat(new, instance="i2") is Error.NONE


def test_a_leader_that_is_back_is_told_to_skip_the_assignment(host: Host) -> None:
    stable(host, "i1", "i2")
    answer = host.answer(static(host, "i1"))
    assert answer.leader == answer.member_id
    assert answer.skip_assignment
    assert [member.group_instance_id for member in answer.members] == ["i1", "i2"]


def test_an_old_leader_that_is_back_is_told_that_somebody_else_leads(host: Host) -> None:
    old, _ = stable(host, "i1", "i2")
    answer = host.answer(static(host, "i1", api_version=8))
    assert answer.leader == old != answer.member_id
    assert not answer.skip_assignment
    assert answer.members == ()


def test_one_that_is_back_with_another_protocol_makes_everybody_join_again(host: Host) -> None:
    both = (("range", META), ("robin", META))
    leader, _ = stable(host, "i1", "i2", protocols=both)
    token = static(host, "i2", protocols=(("robin", META),))
    assert host.answer(token) is None
    assert host.beat(leader, instance="i1") is Error.REBALANCE_IN_PROGRESS
    static(host, "i1", leader, protocols=both)
    assert host.joined(token).protocol_name == "robin"


def test_whoever_still_uses_the_former_id_is_fenced(host: Host) -> None:
    _, old = stable(host, "i1", "i2")
    static(host, "i2")
    assert host.beat(old, instance="i2") is Error.FENCED_INSTANCE_ID
    assert host.ask(joining(old, group_instance_id="i2")).error is Error.FENCED_INSTANCE_ID
    answer = host.ask(SyncGroup(GROUP, 1, old, "i2"))
    assert answer.error is Error.FENCED_INSTANCE_ID
    error = host.commit(member_id=old, group_instance_id="i2", generation_id_or_member_epoch=1)
    assert error is Error.FENCED_INSTANCE_ID
    assert host.leave(old, instance="i2").members == (
        MemberLeft(MemberIdentity(old, "i2"), Error.FENCED_INSTANCE_ID),
    )


def test_an_instance_that_never_joined_is_unknown(host: Host) -> None:
    (member,) = stable(host, "i1")
    assert host.beat(member, instance="i9") is Error.UNKNOWN_MEMBER_ID


def test_a_join_that_waits_under_the_former_id_is_fenced(host: Host) -> None:
    leader, old = stable(host, "i1", "i2")
    static(host, "i1", leader)  # a leader that joins again: everybody is to
    host.pass_ms(1)
    third = static(host, "i3")
    waits = static(host, "i2", old)
    assert host.joined(waits)
    static(host, "i3", host.joined(third).member_id, protocols=(("range", b"other"),))
    waits = static(host, "i2", old)
    back = static(host, "i2")
    assert host.answer(waits) == JoinGroupAnswer(Error.FENCED_INSTANCE_ID, old)
    assert host.answer(back) is None
    static(host, "i1", leader)
    assert host.joined(back).generation_id == 3


def test_one_that_is_back_while_it_waits_to_join_is_no_longer_new(host: Host) -> None:
    (leader,) = stable(host, "i1")
    first = static(host, "i2")
    back = static(host, "i2")
    assert host.answer(first).error is Error.FENCED_INSTANCE_ID
    for _ in range(3):
        host.pass_ms(SESSION_MS // 2)
        assert host.beat(leader, instance="i1") is Error.REBALANCE_IN_PROGRESS
    assert host.answer(back) is None


def test_a_sync_that_waits_under_the_former_id_is_fenced_and_everybody_joins_again(
    host: Host,
) -> None:
    tokens = [static(host, instance) for instance in ("i1", "i2")]
    host.pass_ms(0)
    leader, old = (host.joined(token).member_id for token in tokens)
    waits = host.sync(old)
    back = static(host, "i2")
    assert host.answer(waits) == SyncGroupAnswer(Error.FENCED_INSTANCE_ID)
    assert host.answer(back) is None
    assert host.beat(leader, instance="i1") is Error.REBALANCE_IN_PROGRESS


def test_one_that_is_back_before_it_has_synced_is_still_waited_for(host: Host) -> None:
    tokens = [static(host, instance) for instance in ("i1", "i2")]
    host.pass_ms(0)
    leader, _ = (host.joined(token).member_id for token in tokens)
    host.sync(leader)
    back = host.answer(static(host, "i2")).member_id
    for _ in range(REBALANCE_MS // 5_000):
        host.pass_ms(5_000)
        host.beat(leader, instance="i1")
        host.beat(back, instance="i2")
    assert host.beat(back, instance="i2") is Error.UNKNOWN_MEMBER_ID
    assert host.beat(leader, instance="i1") is Error.REBALANCE_IN_PROGRESS


def test_a_static_member_that_does_not_join_again_keeps_its_place_until_its_session_is_over(
    host: Host,
) -> None:
    said = {"session_timeout_ms": 100_000}
    leader, absent = stable(host, "i1", "i2", **said)
    again = static(host, "i1", leader, **said)
    host.pass_ms(REBALANCE_MS)
    assert [member.member_id for member in host.joined(again).members] == [leader, absent]
    host.sync(leader, 2, group_instance_id="i1")
    host.pass_ms(REBALANCE_MS)
    assert host.beat(leader, 2, "i1") is Error.REBALANCE_IN_PROGRESS


def test_a_rebalance_to_which_nobody_comes_waits_on(host: Host) -> None:
    said = {"session_timeout_ms": 200_000}
    leader, _ = stable(host, "i1", "i2", **said)
    host.fail_over(GroupConfig(initial_rebalance_delay_ms=0, max_size=1))
    host.pass_ms(REBALANCE_MS * 2)
    assert host.state() == "PreparingRebalance"
    token = static(host, "i1", leader, **said)
    host.pass_ms(REBALANCE_MS)
    assert host.joined(token).generation_id == 2


def test_a_static_member_that_is_silent_is_removed(host: Host) -> None:
    (member,) = stable(host, "i1")
    host.pass_ms(SESSION_MS)
    assert host.beat(member, instance="i1") is Error.UNKNOWN_MEMBER_ID
    assert host.state() == "Empty"


def test_an_administrator_removes_a_static_member_by_its_instance(host: Host) -> None:
    _, member = stable(host, "i1", "i2")
    left = host.leave("", instance="i2")
    assert left.members == (MemberLeft(MemberIdentity("", "i2"), Error.NONE),)
    assert host.beat(member, instance="i2") is Error.UNKNOWN_MEMBER_ID
    assert host.leave("", instance="i2").members[0].error is Error.UNKNOWN_MEMBER_ID
    assert host.leave("").members[0].error is Error.UNKNOWN_MEMBER_ID
