"""Classic groups: how members join, how a generation begins, and who is not let in."""

from __future__ import annotations

import pytest
from group_host import REBALANCE_MS, SESSION_MS, Host, joining, subscription

from lossless.core.groups.config import GroupConfig
from lossless.core.groups.messages import JoinGroupAnswer, JoinGroupMember
from lossless.core.messages import Error

META = subscription("orders")


# The first request


def test_a_new_member_is_told_its_id_and_joins_with_it(host: Host) -> None:
    told = host.ask(joining(client_id="app"))
    assert told == JoinGroupAnswer(Error.MEMBER_ID_REQUIRED, told.member_id)
    assert told.member_id.startswith("app-")
    token = host.join(told.member_id)
    host.pass_ms(0)
    assert host.joined(token).member_id == told.member_id


def test_ids_are_drawn_and_differ(host: Host) -> None:
    assert host.ask(joining()).member_id != host.ask(joining()).member_id


def test_an_old_client_joins_at_once_without_an_id(host: Host) -> None:
    token = host.join(api_version=3)
    host.pass_ms(0)
    assert host.joined(token).member_id.startswith("app-")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"session_timeout_ms": 5_999}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, Error.INVALID_SESSION_TIMEOUT),
        ({"protocol_type": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "unheard-of"}, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_bad_join_is_refused_and_makes_no_group(
    host: Host, said: dict[str, object], error: Error
) -> None:
    answer = host.ask(joining(**said))
    assert answer == JoinGroupAnswer(error, str(said.get("member_id", "")))
    assert host.groups() == ()
    assert host.log == []


def test_the_bounds_of_the_session_timeout_are_allowed(host: Host) -> None:
    for timeout_ms in (6_000, 1_800_000):
        answer = host.ask(joining(session_timeout_ms=timeout_ms))
        assert answer.error is Error.MEMBER_ID_REQUIRED


def test_a_member_id_that_nobody_was_given_is_unknown(host: Host) -> None:
    host.stable("a")
    assert host.ask(joining("unheard-of")).error is Error.UNKNOWN_MEMBER_ID


def test_an_id_that_was_not_used_in_time_is_forgotten(host: Host) -> None:
    member = host.ask(joining()).member_id
    host.pass_ms(SESSION_MS)
    assert host.ask(joining(member)).error is Error.UNKNOWN_MEMBER_ID


def test_an_id_given_to_a_dynamic_member_is_not_for_a_static_one(host: Host) -> None:
    member = host.ask(joining()).member_id
    answer = host.ask(joining(member, group_instance_id="i"))
    assert answer == JoinGroupAnswer(Error.UNKNOWN_SERVER_ERROR, member)


# The first generation


def test_the_first_to_join_leads_and_alone_learns_what_the_others_said(host: Host) -> None:
    first, second = host.ask(joining()).member_id, host.ask(joining()).member_id
    leader, follower = host.join(first), host.join(second)
    host.pass_ms(0)
    assert host.answer(leader) == JoinGroupAnswer(
        Error.NONE,
        first,
        1,
        "consumer",
        "range",
        first,
        False,
        (JoinGroupMember(first, None, META), JoinGroupMember(second, None, META)),
    )
    assert host.answer(follower) == JoinGroupAnswer(
        Error.NONE, second, 1, "consumer", "range", first
    )


def test_a_new_group_waits_a_while_for_more_members() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=3_000))
    token = host.join(host.ask(joining()).member_id)
    host.pass_ms(2_999)
    assert host.answer(token) is None
    host.pass_ms(1)
    assert host.joined(token).generation_id == 1


def test_each_newcomer_makes_a_new_group_wait_longer() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = host.join(host.ask(joining()).member_id)
    host.pass_ms(2_000)
    second = host.join(host.ask(joining()).member_id)
    host.pass_ms(2_000)
    assert host.answer(first) is None
    host.pass_ms(2_000)
    assert host.joined(first).generation_id == host.joined(second).generation_id == 1


def test_a_new_group_does_not_wait_longer_than_a_rebalance_may_take() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=3_000))
    first = host.join(host.ask(joining()).member_id, rebalance_timeout_ms=7_000)
    for _ in range(10):
        host.pass_ms(1_000)
        host.join(host.ask(joining()).member_id, rebalance_timeout_ms=7_000)
    # 3 seconds, 3 more, and what was left of the seven.
    assert host.joined(first).generation_id == 1


def test_a_new_group_whose_members_all_leave_is_empty_when_the_wait_is_over() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=3_000))
    member = host.ask(joining()).member_id
    token = host.join(member)
    host.leave(member)
    assert host.answer(token).error is Error.UNKNOWN_MEMBER_ID
    assert host.state() == "PreparingRebalance"
    other = host.join(host.ask(joining()).member_id)  # may still come
    host.pass_ms(6_000)
    assert host.joined(other).generation_id == 1


def test_nobody_left_after_the_wait_is_written_down_as_empty() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=3_000))
    member = host.member()
    host.leave(member)
    host.pass_ms(3_000)
    assert host.state() == "Empty"
    assert len(host.log) == 1


# Protocols


def test_the_group_takes_the_protocol_that_most_prefer_of_those_that_all_know(host: Host) -> None:
    def said(*names: str) -> dict[str, object]:
        return {"protocols": tuple((name, name.encode()) for name in names)}

    tokens = []
    for names in (("sticky", "range", "robin"), ("robin", "range"), ("robin", "range")):
        member = host.ask(joining(**said(*names))).member_id
        tokens.append(host.join(member, **said(*names)))
    host.pass_ms(0)
    answers = [host.joined(token) for token in tokens]
    assert [answer.protocol_name for answer in answers] == ["robin"] * 3
    assert [member.metadata for member in answers[0].members] == [b"robin"] * 3


def test_a_member_must_know_a_protocol_that_all_others_know(host: Host) -> None:
    host.stable("a")
    answer = host.ask(joining(protocols=(("robin", b""),)))
    assert answer == JoinGroupAnswer(Error.INCONSISTENT_GROUP_PROTOCOL, "")


def test_a_member_must_be_of_the_groups_type(host: Host) -> None:
    (member,) = host.stable("a")
    assert host.ask(joining(protocol_type="connect")).error is Error.INCONSISTENT_GROUP_PROTOCOL
    answer = host.ask(joining(member, protocol_type="connect"))
    assert answer == JoinGroupAnswer(Error.INCONSISTENT_GROUP_PROTOCOL, member)


def test_an_empty_group_takes_members_of_another_type(host: Host) -> None:
    (member,) = host.stable("a")
    host.leave(member)
    token = host.join(host.ask(joining(protocol_type="connect")).member_id, protocol_type="connect")
    host.pass_ms(0)
    assert host.joined(token).protocol_type == "connect"


# Later generations


def test_a_newcomer_makes_everybody_join_again(host: Host) -> None:
    (old,) = host.stable("a")
    new = host.join(host.ask(joining()).member_id)
    assert host.beat(old) is Error.REBALANCE_IN_PROGRESS
    assert host.answer(new) is None
    again = host.join(old)
    assert host.joined(again).generation_id == host.joined(new).generation_id == 2
    assert host.joined(new).leader == old


def test_who_does_not_join_again_in_time_is_out(host: Host) -> None:
    old, quiet = host.stable("a", "b")
    new = host.join(host.ask(joining()).member_id)
    again = host.join(old)
    for _ in range(REBALANCE_MS // 5_000):
        host.beat(quiet)
        host.pass_ms(5_000)
    assert [member.member_id for member in host.joined(again).members] == [
        old,
        host.joined(new).member_id,
    ]
    assert host.beat(quiet, 2) is Error.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_join_again_is_replaced(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    host.join(host.ask(joining()).member_id)
    again = host.join(follower)
    host.pass_ms(SESSION_MS)
    assert host.joined(again).leader == follower
    assert host.beat(leader, 2) is Error.UNKNOWN_MEMBER_ID


def test_a_join_that_waits_needs_no_heartbeats_but_a_newcomers_does_not_wait_for_ever() -> None:
    config = GroupConfig(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=20_000)
    host = Host(config)
    old, busy = host.stable("a", "b")
    new = host.join(host.ask(joining()).member_id)
    again = host.join(old)
    for _ in range(4):
        host.pass_ms(5_000)
        host.beat(busy)
    assert host.answer(new) == JoinGroupAnswer(Error.UNKNOWN_MEMBER_ID)
    assert host.answer(again) is None


def test_a_follower_with_nothing_new_is_told_where_the_group_stands(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    answer = host.ask(joining(follower))
    assert answer == JoinGroupAnswer(Error.NONE, follower, 1, "consumer", "range", leader)
    assert host.state() == "Stable"


def test_a_follower_with_something_new_makes_everybody_join_again(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    token = host.join(follower, protocols=(("range", subscription("payments")),))
    assert host.answer(token) is None
    assert host.beat(leader) is Error.REBALANCE_IN_PROGRESS


def test_a_leader_that_joins_again_makes_everybody_join_again(host: Host) -> None:
    leader, follower = host.stable("a", "b")
    assert host.answer(host.join(leader)) is None
    assert host.beat(follower) is Error.REBALANCE_IN_PROGRESS


def test_a_join_whose_answer_was_lost_is_answered_again_while_the_leader_assigns(
    host: Host,
) -> None:
    leader, follower = (host.member(client_id=name) for name in "ab")
    host.pass_ms(0)
    assert host.state() == "CompletingRebalance"
    assert len(host.ask(joining(leader)).members) == 2
    assert host.ask(joining(follower)).members == ()
    token = host.join(follower, protocols=(("range", b"other"),))
    assert host.answer(token) is None
    assert host.state() == "PreparingRebalance"


def test_a_join_that_is_sent_again_takes_the_place_of_the_first(host: Host) -> None:
    old, _ = host.stable("a", "b")
    first = host.join(old)
    second = host.join(old)
    assert host.answer(first) == JoinGroupAnswer(Error.REBALANCE_IN_PROGRESS, old)
    assert host.answer(second) is None


def test_the_rebalance_waits_for_who_was_given_an_id(host: Host) -> None:
    (old,) = host.stable("a")
    pending = host.ask(joining()).member_id
    again = host.join(old)
    assert host.answer(again) is None
    host.join(pending)
    assert len(host.joined(again).members) == 2


def test_the_rebalance_goes_on_when_who_was_given_an_id_does_not_come(host: Host) -> None:
    (old,) = host.stable("a")
    host.ask(joining())
    again = host.join(old)
    host.pass_ms(SESSION_MS)
    assert len(host.joined(again).members) == 1


def test_who_was_given_an_id_and_does_not_come_disturbs_no_stable_group(host: Host) -> None:
    (old,) = host.stable("a")
    host.ask(joining())
    for _ in range(4):
        host.pass_ms(SESSION_MS // 2)
        assert host.beat(old) is Error.NONE


def test_without_a_rebalance_timeout_the_session_timeout_counts(host: Host) -> None:
    quick = {"rebalance_timeout_ms": -1}
    old, _ = host.stable("a", "b", **quick)
    again = host.join(old, **quick)
    host.pass_ms(SESSION_MS)
    assert host.joined(again).generation_id == 2


# How many


def test_a_full_group_takes_no_more_members() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    host.stable("a", "b")
    answer = host.ask(joining())
    assert answer == JoinGroupAnswer(Error.GROUP_MAX_SIZE_REACHED)


def test_a_full_group_takes_back_its_members() -> None:
    host = Host(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    first, second = host.stable("a", "b")
    token = host.join(first)
    host.join(first)
    assert host.answer(token).error is Error.REBALANCE_IN_PROGRESS
    assert host.joined(host.join(second)).generation_id == 2


def test_of_a_group_that_is_too_large_the_last_to_join_again_are_out() -> None:
    host = Host()
    members = host.stable("a", "b", "c")
    host.fail_over(GroupConfig(initial_rebalance_delay_ms=0, max_size=2))
    assert [host.beat(member) for member in members] == [Error.REBALANCE_IN_PROGRESS] * 3
    tokens = [host.join(member) for member in members]
    assert host.answer(tokens[2]).error is Error.GROUP_MAX_SIZE_REACHED
    host.pass_ms(REBALANCE_MS)
    assert len(host.joined(tokens[0]).members) == 2
