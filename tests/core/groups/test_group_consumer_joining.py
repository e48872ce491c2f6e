"""Consumer groups (KIP-848): joining, subscribing, describing, and sharing a name with the classic
protocol."""

from __future__ import annotations

import time

import pytest
from group_host import (
    GROUP,
    ORDERS,
    ORDERS_0,
    PAYMENTS,
    PAYMENTS_0,
    Host,
    consuming,
    joining,
    orders,
    payments,
)

from lossless.core.groups.config import GroupConfig, TopicView
from lossless.core.groups.messages import (
    ConsumerGroupDescribe,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DescribedConsumer,
    Heartbeat,
    MemberIdentity,
    MemberLeft,
    OffsetDelete,
    SyncGroup,
    TopicPartitions,
)
from lossless.core.groups.records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    GroupMetadataKey,
)
from lossless.core.messages import Error


def describe(host: Host) -> ConsumerGroupDescribeAnswer:
    answer = host.ask(ConsumerGroupDescribe(GROUP))
    assert isinstance(answer, ConsumerGroupDescribeAnswer)
    return answer


# Joining


def test_the_first_member_gets_everything_it_subscribes_to(host: Host) -> None:
    assert host.consume("a") == ConsumerGroupHeartbeatAnswer(
        Error.NONE, None, "a", 1, 5_000, orders(0, 1, 2)
    )
    assert host.state() == "Stable"


def test_the_second_member_waits_for_what_the_first_gives_up(host: Host) -> None:
    host.consume("a")
    joined = host.consume("b")
    assert (joined.member_epoch, joined.assignment) == (2, ())
    assert host.state() == "Reconciling"


def test_an_old_client_is_given_an_id(host: Host) -> None:
    answer = host.consume("", api_version=0)
    assert answer.error is Error.NONE
    assert len(answer.member_id or "") == 36


def test_the_heartbeat_interval_is_a_setting() -> None:
    host = Host(GroupConfig(consumer_heartbeat_interval_ms=3_000))
    assert host.consume("a").heartbeat_interval_ms == 3_000


@pytest.mark.parametrize(
    ("epoch", "said", "message"),
    [
        (0, {"member_id": ""}, "MemberId can't be empty."),
        (1, {"member_id": "", "api_version": 0}, "MemberId can't be empty."),
        (-1, {"member_id": "", "api_version": 0}, "MemberId can't be empty."),
        (0, {"group_id": ""}, "GroupId can't be empty."),
        (0, {"instance_id": ""}, "InstanceId can't be empty."),
        (0, {"rack_id": ""}, "RackId can't be empty."),
        (0, {"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        (0, {"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (0, {"topic_partitions": orders(0)}, "TopicPartitions must be empty when (re-)joining."),
        (
            0,
            {"subscribed_topic_names": None},
            "SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.",
        ),
        (-2, {}, "InstanceId can't be null."),
        (-3, {}, "MemberEpoch is invalid."),
    ],
)
def test_a_bad_heartbeat_is_refused_and_makes_no_group(
    host: Host, epoch: int, said: dict[str, object], message: str
) -> None:
    request = consuming("a", epoch)._replace(**said)
    assert host.ask(request) == ConsumerGroupHeartbeatAnswer(Error.INVALID_REQUEST, message)
    assert host.groups() == ()


def test_an_assignor_that_does_not_exist_is_refused(host: Host) -> None:
    assert host.consume("a", server_assignor="sticky").error is Error.UNSUPPORTED_ASSIGNOR


def test_only_a_join_makes_a_group(host: Host) -> None:
    assert host.consume("a", 1).error is Error.GROUP_ID_NOT_FOUND
    assert host.consume("a", -1).error is Error.GROUP_ID_NOT_FOUND


def test_a_full_group_takes_no_more_members() -> None:
    host = Host(GroupConfig(consumer_max_size=1))
    host.consume("a")
    assert host.consume("b").error is Error.GROUP_MAX_SIZE_REACHED
    assert host.consume("a", 1).error is Error.NONE


def test_a_member_may_subscribe_to_nothing(host: Host) -> None:
    answer = host.consume("a", subscribed_topic_names=())
    assert (answer.member_epoch, answer.assignment) == (1, ())
    assert host.consume("a", 1).assignment is None


def test_a_topic_that_does_not_exist_is_no_error(host: Host) -> None:
    answer = host.consume("a", subscribed_topic_names=("orders", "not yet"))
    assert answer.assignment == orders(0, 1, 2)


# Heartbeats


def test_a_heartbeat_with_nothing_new_is_answered_with_nothing_new(host: Host) -> None:
    host.consume("a")
    before = len(host.log)
    answer = host.consume("a", 1)
    assert answer == ConsumerGroupHeartbeatAnswer(Error.NONE, None, "a", 1, 5_000, None)
    assert len(host.log) == before


def test_a_member_that_says_everything_is_told_everything(host: Host) -> None:
    host.consume("a")
    said = {"rebalance_timeout_ms": 1, "topic_partitions": orders(0)}
    answer = host.consume("a", 1, subscribed_topic_names=("orders",), **said)
    assert answer.assignment == orders(0, 1, 2)
    assert host.consume("a", 1, **said).assignment is None


def test_a_member_that_subscribes_to_more_gets_more(host: Host) -> None:
    host.consume("a")
    answer = host.consume("a", 1, subscribed_topic_names=("payments", "orders"))
    assert answer.member_epoch == 2
    assert answer.assignment == orders(0, 1, 2) + payments(0, 1)


def test_the_order_of_the_topics_does_not_matter(host: Host) -> None:
    host.consume("a", subscribed_topic_names=("payments", "orders"))
    answer = host.consume("a", 1, subscribed_topic_names=("orders", "payments", "orders"))
    assert answer.member_epoch == 1


def test_a_member_with_another_name_or_rack_does_not_disturb_the_others(host: Host) -> None:
    host.consume("a")
    answer = host.consume("a", 1, client_id="other", rack_id="r1", server_assignor="range")
    assert answer.member_epoch == 1
    (member,) = describe(host).members
    assert (member.client_id, member.rack_id) == ("other", "r1")
    assert describe(host).assignor_name == "range"


# Topics that change


def test_new_partitions_are_assigned_with_the_next_heartbeat(host: Host) -> None:
    host.consume("a")
    host.topics["orders"] = TopicView(ORDERS.id, 4)
    answer = host.consume("a", 1)
    assert (answer.member_epoch, answer.assignment) == (2, orders(0, 1, 2, 3))


def test_a_topic_that_is_created_later_is_assigned_with_the_next_heartbeat(host: Host) -> None:
    host.consume("a", subscribed_topic_names=("later",))
    host.topics["later"] = TopicView(0xC3, 1)
    assert host.consume("a", 1).assignment == (TopicPartitions(0xC3, (0,)),)


def test_partitions_of_a_topic_that_is_deleted_are_revoked(host: Host) -> None:
    host.consume("a")
    del host.topics["orders"]
    answer = host.consume("a", 1)
    assert (answer.member_epoch, answer.assignment) == (1, ())
    answer = host.consume("a", 1, topic_partitions=())
    assert answer.member_epoch == 2


def test_replicas_on_other_racks_make_another_epoch(host: Host) -> None:
    host.consume("a")
    host.topics["orders"] = TopicView(ORDERS.id, 3, (("r1",), ("r2",), ("r1", "r2")))
    assert host.consume("a", 1).member_epoch == 2
    host.topics["orders"] = TopicView(ORDERS.id, 3, (("r1",), ("r2",), ("r2", "r1")))
    assert host.consume("a", 2).member_epoch == 2


def test_other_topics_do_not_matter(host: Host) -> None:
    host.consume("a")
    host.topics["payments"] = TopicView(PAYMENTS.id, 9)
    assert host.consume("a", 1).member_epoch == 1


# Regular expressions


def test_a_regular_expression_stands_for_the_topics_that_it_matches_from_end_to_end(
    host: Host,
) -> None:
    host.topics["old-orders"] = TopicView(0xC3, 1)
    answer = host.consume("a", subscribed_topic_names=None, subscribed_topic_regex="or.*|pay.*")
    assert answer.assignment == orders(0, 1, 2) + payments(0, 1)


def test_a_topic_that_matches_later_is_assigned_with_the_next_heartbeat(host: Host) -> None:
    host.consume("a", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    host.topics["ordinary"] = TopicView(0xC3, 1)
    answer = host.consume("a", 1)
    assert answer.assignment == (*orders(0, 1, 2), TopicPartitions(0xC3, (0,)))


def test_names_and_a_regular_expression_add_up(host: Host) -> None:
    answer = host.consume("a", subscribed_topic_regex="pay.*")
    assert answer.assignment == orders(0, 1, 2) + payments(0, 1)


def test_an_empty_regular_expression_is_none(host: Host) -> None:
    host.consume("a", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    answer = host.consume("a", 1, subscribed_topic_regex="")
    assert answer.assignment == ()


def test_an_expression_that_is_not_regular_is_refused(host: Host) -> None:
    answer = host.consume("a", subscribed_topic_regex="(")
    assert answer.error is Error.INVALID_REGULAR_EXPRESSION
    assert host.groups() == ()


@pytest.mark.parametrize(
    "expression",
    [r"(a)\1", "(?=a)a", "(?<!a)b", "a++", "(" * 2000, "a{1001}", r"(\pL{100}){10}", "\ud800"],
    ids=[
        "backreference",
        "lookahead",
        "lookbehind",
        "possessive",
        "open",
        "repeats",
        "large",
        "bytes",
    ],
)
def test_an_expression_beyond_re2_is_refused(host: Host, expression: str) -> None:
    answer = host.consume("a", subscribed_topic_regex=expression)
    assert answer.error is Error.INVALID_REGULAR_EXPRESSION
    assert host.groups() == ()


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|aa)+$", "(.*a){50}b", "(a?){45}a{45}b"])
def test_an_expression_that_would_backtrack_for_ever_is_answered_at_once(
    host: Host, expression: str
) -> None:
    host.topics["a" * 45 + "!"] = TopicView(0xC3, 1)
    started = time.process_time()
    answer = host.consume("a", subscribed_topic_names=None, subscribed_topic_regex=expression)
    assert (answer.error, answer.assignment) == (Error.NONE, ())
    assert time.process_time() - started < 1


@pytest.mark.parametrize(
    ("expression", "topic"),
    [(r"\Qa.b\E", "a.b"), (r"(?i)A\.B", "a.b"), (r"\p{Ll}\.\pL", "a.b"), (r"^a\W\w$", "a.b")],
)
def test_expressions_as_javas_clients_write_them_match(
    host: Host, expression: str, topic: str
) -> None:
    host.topics[topic] = TopicView(0xC3, 1)
    answer = host.consume("a", subscribed_topic_names=None, subscribed_topic_regex=expression)
    assert answer.assignment == (TopicPartitions(0xC3, (0,)),)


def test_what_an_expression_stands_for_is_written_down_as_long_as_it_is_used(host: Host) -> None:
    host.consume("a", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    key = ConsumerGroupRegularExpressionKey(GROUP, "ord.*")
    value = ConsumerGroupRegularExpressionValue(("orders",), 0, host.now_ms)
    assert host.written().count((key, value)) == 1
    host.consume("b", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    host.consume("a", -1)
    assert (key, None) not in host.written()
    host.consume("b", -1)
    assert (key, None) in host.written()


def test_an_expression_that_another_broker_understood_stands_for_nothing_here(host: Host) -> None:
    host.consume("a")
    group = host.shard._store.consumer[GROUP]
    member = group.members["a"]._replace(subscribed_topic_regex=r"\pL(")
    key = next(key for key, _ in host.written() if type(key).__name__.endswith("MemberMetadataKey"))
    assert key is not None
    host.write(key, member.metadata())
    assert host.consume("a", 1).error is Error.NONE


# Assignors


def test_the_assignor_that_most_members_ask_for_is_used(host: Host) -> None:
    host.consume("a", server_assignor="range")
    host.consume("b", server_assignor="range")
    host.consume("c", server_assignor="uniform")
    assert describe(host).assignor_name == "range"


def test_the_first_assignor_of_the_settings_is_used_unless_somebody_asks() -> None:
    host = Host(GroupConfig(consumer_assignors=("range", "uniform")))
    host.consume("a")
    assert describe(host).assignor_name == "range"


# Describing


def test_a_group_is_described_with_what_members_have_and_are_to_have(host: Host) -> None:
    host.consume("a", instance_id="i", rack_id="r", client_id="c", client_host="/h")
    host.consume("b", subscribed_topic_names=None, subscribed_topic_regex="ord.*")
    answer = describe(host)
    assert answer._replace(members=()) == ConsumerGroupDescribeAnswer(
        Error.NONE, GROUP, None, "Reconciling", 2, 2, "uniform"
    )
    all_orders = (("orders", TopicPartitions(ORDERS.id, (0, 1, 2))),)
    assert answer.members[0] == DescribedConsumer(
        "a",
        "i",
        "r",
        1,
        "c",
        "/h",
        ("orders",),
        None,
        all_orders,
        (("orders", TopicPartitions(ORDERS.id, (0, 1))),),
    )
    assert answer.members[1].target_assignment == (("orders", TopicPartitions(ORDERS.id, (2,))),)
    del host.topics["orders"]
    assert describe(host).members[0].assignment == ()


def test_only_consumer_groups_are_described(host: Host) -> None:
    host.commit()
    assert describe(host).error is Error.GROUP_ID_NOT_FOUND
    assert host.ask(ConsumerGroupDescribe("")).error is Error.INVALID_GROUP_ID


# One name, two protocols


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(host: Host) -> None:
    (member,) = host.stable("a")
    host.commit(member_id=member, generation_id_or_member_epoch=1)
    host.leave(member)
    assert host.consume("b").error is Error.NONE
    assert (GroupMetadataKey(GROUP), None) in host.written()
    assert [group.type for group in host.groups()] == ["consumer"]
    host.fail_over()
    assert [group.type for group in host.groups()] == ["consumer"]
    assert host.fetched() == 5


def test_a_simple_group_becomes_a_consumer_group(host: Host) -> None:
    host.commit()
    assert host.consume("a").member_epoch == 1
    assert host.fetched() == 5


def test_a_classic_group_with_members_takes_no_consumers(host: Host) -> None:
    host.stable("a")
    assert host.consume("b").error is Error.GROUP_ID_NOT_FOUND
    assert host.state() == "Stable"


def test_a_consumer_group_with_members_takes_no_classic_members(host: Host) -> None:
    host.consume("a")
    assert host.ask(joining()).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert host.ask(Heartbeat(GROUP, 1, "a")).error is Error.UNKNOWN_MEMBER_ID
    assert host.ask(SyncGroup(GROUP, 1, "a")).error is Error.UNKNOWN_MEMBER_ID
    left = (MemberLeft(MemberIdentity("a"), Error.UNKNOWN_MEMBER_ID),)
    assert host.leave("a").members == left
    assert host.consume("a", 1).error is Error.NONE


def test_an_empty_consumer_group_becomes_a_classic_group_and_keeps_its_offsets(host: Host) -> None:
    host.consume("a")
    host.commit(member_id="a", generation_id_or_member_epoch=1)
    host.consume("a", -1)
    token = host.join(host.ask(joining()).member_id)
    host.pass_ms(0)
    assert host.joined(token).generation_id == 1
    assert (ConsumerGroupMetadataKey(GROUP), None) in host.written()
    assert [group.type for group in host.groups()] == ["classic"]
    host.fail_over()
    assert [(group.type, group.state) for group in host.groups()] == [("classic", "Empty")]
    assert host.fetched() == 5


def test_a_classic_member_that_is_refused_leaves_an_empty_consumer_group_as_it_is(
    host: Host,
) -> None:
    host.consume("a")
    host.consume("a", -1)
    assert host.ask(joining(protocols=())).error is Error.INCONSISTENT_GROUP_PROTOCOL
    assert [group.type for group in host.groups()] == ["consumer"]


def test_an_id_that_a_classic_member_was_given_expires_without_harm(host: Host) -> None:
    host.ask(joining())
    host.consume("a")
    for _ in range(5):
        host.pass_ms(10_000)
        assert host.consume("a", 1).error is Error.NONE


# Offsets


def test_offsets_of_topics_that_members_read_cannot_be_deleted(host: Host) -> None:
    host.consume("a", subscribed_topic_names=(), subscribed_topic_regex="ord.*")
    for partition in (ORDERS_0, PAYMENTS_0):
        host.commit(partition, member_id="a", generation_id_or_member_epoch=1)
    answer = host.ask(OffsetDelete(GROUP, (ORDERS_0, PAYMENTS_0)))
    assert [error for _, error in answer.partitions] == [
        Error.GROUP_SUBSCRIBED_TO_TOPIC,
        Error.NONE,
    ]
