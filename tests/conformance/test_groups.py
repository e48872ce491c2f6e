"""Consumer groups, of the classic protocol and of the new one (KIP-848)."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import NewPartitions
from subject import TIMEOUT_S, Subject, error_code, poll_until, take, text

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until

PROTOCOLS = ("classic", "consumer")
CLASSIC: dict[str, Any] = {"heartbeat_interval_ms": 200, "session_timeout_ms": 6000}

both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


class Members:
    """Consumers of one group, closed when the test ends."""

    def __init__(self, kafka: Subject, protocol: str, closing: ExitStack) -> None:
        self.kafka = kafka
        self.group = kafka.name()
        self._protocol = protocol
        self._closing = closing

    def join(self, *topics: str, on_revoke: Any = None, **settings: Any) -> Consumer:
        classic = CLASSIC if self._protocol == "classic" else {}
        defaults = {"group_id": self.group, "group_protocol": self._protocol}
        defaults |= {"auto_offset_reset": "earliest", **classic}
        consumer = self._closing.enter_context(self.kafka.consumer(**{**defaults, **settings}))
        callbacks = {} if on_revoke is None else {"on_revoke": on_revoke}
        consumer.subscribe(list(topics), **callbacks)
        return consumer


@pytest.fixture
def members(kafka: Subject, protocol: str) -> Any:
    with ExitStack() as closing:
        yield Members(kafka, protocol, closing)


def assigned(consumer: Consumer) -> set[tuple[str, int]]:
    return {(one.topic, one.partition) for one in consumer.assignment()}


def partitions_of(topic: str, count: int) -> set[tuple[str, int]]:
    return {(topic, number) for number in range(count)}


@both_protocols
def test_members_share_the_partitions_and_inherit_from_who_leaves(
    kafka: Subject, members: Members
) -> None:
    topic = kafka.topic(4)
    everything = partitions_of(topic, 4)
    first = members.join(topic)
    poll_until([first], lambda: assigned(first) == everything)
    second = members.join(topic)
    poll_until([first, second], lambda: len(assigned(first)) == len(assigned(second)) == 2)
    assert assigned(first) | assigned(second) == everything
    first.close()
    poll_until([second], lambda: assigned(second) == everything)


@both_protocols
def test_everything_is_read_once_by_each_group(kafka: Subject, members: Members) -> None:
    topic = kafka.topic(3)
    values = [str(number) for number in range(30)]
    kafka.send(topic, *({"value": v, "partition": int(v) % 3} for v in values))
    consumer = members.join(topic)
    assert sorted(text(message) for message in take(consumer, 30)) == sorted(values)
    consumer.commit(asynchronous=False)
    consumer.close()
    kafka.send(topic, {"value": "new", "partition": 1})
    assert [text(message) for message in take(members.join(topic), 1)] == ["new"]
    other = members.join(topic, group_id=kafka.name())
    assert sorted(text(message) for message in take(other, 31)) == sorted([*values, "new"])


@both_protocols
def test_committed_offsets_are_fetched_with_their_metadata(
    kafka: Subject, members: Members
) -> None:
    topic = kafka.topic(2)
    consumer = members.join(topic)
    poll_until([consumer], lambda: len(assigned(consumer)) == 2)
    consumer.commit(offsets=[TopicPartition(topic, 0, 7, "note")], asynchronous=False)
    asked = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    first, second = consumer.committed(asked, TIMEOUT_S)
    assert (first.offset, first.metadata) == (7, "note")
    assert second.offset < 0
    assert committed(kafka, members.group) == {(topic, 0): 7}


@both_protocols
def test_a_static_member_that_comes_back_has_what_it_had(kafka: Subject, members: Members) -> None:
    topic = kafka.topic(4)
    one = members.join(topic, group_instance_id="one")
    two = members.join(topic, group_instance_id="two")
    poll_until([one, two], lambda: len(assigned(one)) == len(assigned(two)) == 2)
    before = assigned(one)
    revoked: list[object] = []
    one.close()
    again = members.join(topic, group_instance_id="one", on_revoke=lambda *_: revoked.append(1))
    poll_until([again, two], lambda: bool(assigned(again)))
    assert assigned(again) == before
    assert len(assigned(two)) == 2
    described = describe(kafka, members.group)
    assert {member.group_instance_id for member in described.members} == {"one", "two"}


@both_protocols
def test_two_members_may_not_have_one_instance_id(
    kafka: Subject, members: Members, protocol: str
) -> None:
    topic = kafka.topic()
    first = members.join(topic, group_instance_id="one")
    poll_until([first], lambda: bool(assigned(first)))
    second = members.join(topic, group_instance_id="one")
    if protocol == "classic":  # whoever comes later has the name
        poll_until([second], lambda: bool(assigned(second)))

        assert wait_until(lambda: is_fatal(first), timeout_s=TIMEOUT_S)
    else:  # whoever has the name keeps it
        assert wait_until(lambda: is_fatal(second), timeout_s=TIMEOUT_S)
        assert (assigned(first), assigned(second)) == ({(topic, 0)}, set())


def is_fatal(consumer: Consumer) -> bool:
    """Whether it has just said that it cannot go on."""
    message = consumer.poll(0.05)
    error = message.error() if message is not None else None
    return error is not None and error.code() == KafkaError._FATAL


@pytest.mark.parametrize("protocol", ["classic"])
def test_cooperative_members_keep_what_they_need_not_give(kafka: Subject, members: Members) -> None:
    topic = kafka.topic(4)
    revoked: list[int] = []

    def note(_consumer: Consumer, partitions: list[TopicPartition]) -> None:
        revoked.append(len(partitions))

    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    first = members.join(topic, on_revoke=note, **strategy)
    poll_until([first], lambda: len(assigned(first)) == 4)
    second = members.join(topic, **strategy)
    poll_until([first, second], lambda: len(assigned(second)) == 2)
    assert len(assigned(first)) == 2
    assert revoked == [2]


@pytest.mark.parametrize("protocol", ["classic"])
def test_members_without_a_strategy_in_common_are_refused(kafka: Subject, members: Members) -> None:
    topic = kafka.topic()
    first = members.join(topic, partition_assignment_strategy="range")
    poll_until([first], lambda: bool(assigned(first)))
    second = members.join(topic, partition_assignment_strategy="cooperative-sticky")
    message = second.poll(TIMEOUT_S)
    assert message is not None
    error = message.error()
    assert error is not None
    assert error.code() == KafkaError.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol", "assignor"), [("consumer", "range"), ("consumer", "uniform")])
def test_both_assignors_of_the_broker_assign_everything(
    kafka: Subject, members: Members, assignor: str
) -> None:
    one, two = kafka.topic(2), kafka.topic(2)
    first = members.join(one, two, group_remote_assignor=assignor)
    second = members.join(one, two, group_remote_assignor=assignor)
    poll_until([first, second], lambda: len(assigned(first)) == len(assigned(second)) == 2)
    assert assigned(first) | assigned(second) == partitions_of(one, 2) | partitions_of(two, 2)
    if assignor == "range":  # partitions of one number belong together
        assert {number for _, number in assigned(first)} != {0, 1}


@both_protocols
def test_new_partitions_are_assigned(kafka: Subject, members: Members) -> None:
    topic = kafka.topic(1)
    consumer = members.join(topic)
    poll_until([consumer], lambda: assigned(consumer) == {(topic, 0)})
    kafka.admin.create_partitions([NewPartitions(topic, 3)])[topic].result(TIMEOUT_S)
    poll_until([consumer], lambda: assigned(consumer) == partitions_of(topic, 3))


@both_protocols
def test_a_pattern_finds_the_topics_that_match(kafka: Subject, members: Members) -> None:
    one, two, _other = kafka.topic(), kafka.topic(), kafka.topic()
    consumer = members.join(f"^({one}|{two})$")
    poll_until([consumer], lambda: assigned(consumer) == {(one, 0), (two, 0)})


@both_protocols
def test_a_deleted_topic_is_taken_from_its_members(kafka: Subject, members: Members) -> None:
    stays, goes = kafka.topic(), kafka.topic()
    consumer = members.join(stays, goes)
    poll_until([consumer], lambda: assigned(consumer) == {(stays, 0), (goes, 0)})
    kafka.admin.delete_topics([goes])[goes].result(TIMEOUT_S)
    poll_until([consumer], lambda: assigned(consumer) == {(stays, 0)})


@both_protocols
def test_a_group_is_listed_and_described_and_deleted_when_it_is_empty(
    kafka: Subject, members: Members, protocol: str
) -> None:
    topic = kafka.topic(2)
    consumer = members.join(topic, client_id="reader")
    poll_until([consumer], lambda: len(assigned(consumer)) == 2)
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    kind = ConsumerGroupType.CLASSIC if protocol == "classic" else ConsumerGroupType.CONSUMER

    listed = list_groups(kafka)[members.group]
    assert (listed.state, listed.type, listed.is_simple_consumer_group) == (
        ConsumerGroupState.STABLE,
        kind,
        False,
    )
    described = describe(kafka, members.group)
    assert (described.state, described.type) == (ConsumerGroupState.STABLE, kind)
    (member,) = described.members
    assert member.client_id == "reader"
    assert member.host == "/127.0.0.1"
    assert {(one.topic, one.partition) for one in member.assignment.topic_partitions} == assigned(
        consumer
    )
    assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")

    assert delete(kafka, members.group) is Error.NON_EMPTY_GROUP
    assert alter(kafka, members.group, TopicPartition(topic, 0, 1)) is Error.UNKNOWN_MEMBER_ID
    assert committed(kafka, members.group) == {(topic, 0): 3}

    consumer.close()
    assert describe(kafka, members.group).state is ConsumerGroupState.EMPTY
    assert alter(kafka, members.group, TopicPartition(topic, 0, 1)) is Error.NONE
    assert committed(kafka, members.group) == {(topic, 0): 1}
    assert delete(kafka, members.group) is Error.NONE
    assert members.group not in list_groups(kafka)
    assert delete(kafka, members.group) is Error.GROUP_ID_NOT_FOUND


def test_groups_are_listed_by_state_and_type(kafka: Subject) -> None:
    group, topic = kafka.name(), kafka.topic()
    assert alter(kafka, group, TopicPartition(topic, 0, 5)) is Error.NONE

    def listed(**filters: Any) -> bool:
        return group in list_groups(kafka, **filters)

    assert listed()
    assert listed(states={ConsumerGroupState.EMPTY})
    assert not listed(states={ConsumerGroupState.STABLE})
    assert listed(types={ConsumerGroupType.CLASSIC})
    assert not listed(types={ConsumerGroupType.CONSUMER})
    assert list_groups(kafka)[group].is_simple_consumer_group


def test_a_group_that_nobody_knows_is_dead_and_has_no_offsets(kafka: Subject) -> None:
    name = kafka.name()
    assert describe(kafka, name).state is ConsumerGroupState.DEAD
    assert committed(kafka, name) == {}


# What an administrator sees


def list_groups(kafka: Subject, **filters: Any) -> dict[str, Any]:
    """All of them, once every coordinator has answered."""
    result = kafka.admin.list_consumer_groups(**filters).result(TIMEOUT_S)
    assert not result.errors
    return {one.group_id: one for one in result.valid}


def describe(kafka: Subject, group: str) -> Any:
    return kafka.admin.describe_consumer_groups([group])[group].result(TIMEOUT_S)


def delete(kafka: Subject, group: str) -> Error:
    future = kafka.admin.delete_consumer_groups([group])[group]
    return error_code(lambda: future.result(TIMEOUT_S))


def alter(kafka: Subject, group: str, offset: TopicPartition) -> Error:
    asked = [ConsumerGroupTopicPartitions(group, [offset])]
    altered = kafka.admin.alter_consumer_group_offsets(asked)[group].result(TIMEOUT_S)
    error = altered.topic_partitions[0].error
    return Error.NONE if error is None else Error(error.code())


def committed(kafka: Subject, group: str) -> dict[tuple[str, int], int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    answer = kafka.admin.list_consumer_group_offsets(asked)[group].result(TIMEOUT_S)
    return {(one.topic, one.partition): one.offset for one in answer.topic_partitions}
