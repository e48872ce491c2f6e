"""What coordinators of groups and transactions refuse, with which of Kafka's error codes."""

from __future__ import annotations

from typing import Any

import pytest
from subject import TIMEOUT_S, Subject, batch, produced

from lossless.core.error_codes import Error
from lossless.engines.waiting import wait_until
from lossless.wire.differences import CLASSIC_JOINS_CONSUMER
from one_request import ask, error_of

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR = 8, 9, 10
JOIN, HEARTBEAT, LEAVE, SYNC, DESCRIBE_GROUPS = 11, 12, 13, 14, 15
INIT_PRODUCER_ID, END_TXN, OFFSET_DELETE = 22, 26, 47
DESCRIBE_TRANSACTIONS, CONSUMER_HEARTBEAT = 65, 68
GROUP, TRANSACTION = 0, 1


def coordinator(kafka: Subject, key: str, key_type: int = GROUP) -> str:
    """The address of the coordinator, once there is one that knows it."""
    found: list[str] = []

    def is_ready() -> bool:
        asked = {"key_type": key_type, "coordinator_keys": [key]}
        (said,) = ask(kafka.addresses()[0], FIND_COORDINATOR, 4, **asked).coordinators
        if error_of(said) is not Error.NONE:
            return False
        found.append(kafka.address(said.node_id))
        if key_type == GROUP:
            (known,) = ask(found[-1], OFFSET_FETCH, 8, groups=[{"group_id": key}]).groups
        else:
            asked = {"transactional_ids": [key]}
            (known,) = ask(found[-1], DESCRIBE_TRANSACTIONS, 0, **asked).transaction_states
        return error_of(known) not in (Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS)

    assert wait_until(is_ready, timeout_s=TIMEOUT_S)
    return found[-1]


@pytest.mark.parametrize(
    ("topic", "key_type"), [("__consumer_offsets", GROUP), ("__transaction_state", TRANSACTION)]
)
def test_what_coordinators_believe_nobody_else_may_write(
    kafka: Subject, topic: str, key_type: int
) -> None:
    coordinator(kafka, kafka.name(), key_type)  # then there is such a topic
    said = produced(kafka.leader(topic), topic, batch("v"))
    assert error_of(said) is Error.INVALID_TOPIC_EXCEPTION


def join(address: str, group: str, **fields: Any) -> Any:
    asked = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    return ask(address, JOIN, 9, **{**asked, **fields})


def commit(address: str, group: str, topic: str, partition: int = 0, **fields: Any) -> Error:
    metadata = fields.pop("metadata", "")
    one = {"partition_index": partition, "committed_offset": 5, "committed_metadata": metadata}
    one["committed_leader_epoch"] = -1
    asked = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""} | fields
    topics = [{"name": topic, "partitions": [one]}]
    answer = ask(address, OFFSET_COMMIT, 8, topics=topics, **asked)
    return error_of(answer.topics[0].partitions[0])


class Member:
    """The only member of a classic group, led by itself."""

    def __init__(self, kafka: Subject, topic: str | None = None) -> None:
        self.group = kafka.name()
        self.at = coordinator(kafka, self.group)
        metadata = b"" if topic is None else _subscription(topic)
        protocols = [{"name": "range", "metadata": metadata}]
        asked = join(self.at, self.group, protocols=protocols)
        assert error_of(asked) is Error.MEMBER_ID_REQUIRED
        self.id = asked.member_id
        joined = join(self.at, self.group, member_id=self.id, protocols=protocols)
        assert error_of(joined) is Error.NONE
        assert (joined.leader, joined.member_id, joined.generation_id) == (self.id, self.id, 1)
        self.generation = 1

    def ask(self, key: int, version: int, **fields: Any) -> Any:
        asked = {"group_id": self.group, "member_id": self.id, "generation_id": self.generation}
        return ask(self.at, key, version, **{**asked, **fields})

    def sync(self, **fields: Any) -> Any:
        mine = [{"member_id": self.id, "assignment": b"mine"}]
        named = {"protocol_type": "consumer", "protocol_name": "range", "assignments": mine}
        return self.ask(SYNC, 5, **{**named, **fields})

    def heartbeat(self, **fields: Any) -> Error:
        return error_of(self.ask(HEARTBEAT, 4, **fields))


def _subscription(topic: str) -> bytes:
    name = topic.encode()
    return b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff\xff\xff\xff"


# Groups


def test_a_member_of_a_classic_group_is_known_by_id_and_generation(kafka: Subject) -> None:
    member, topic = Member(kafka), kafka.topic()
    assert error_of(member.sync(protocol_name="sticky")) is Error.INCONSISTENT_GROUP_PROTOCOL
    assert error_of(member.sync(generation_id=7)) is Error.ILLEGAL_GENERATION
    assert error_of(member.sync(member_id="nobody")) is Error.UNKNOWN_MEMBER_ID
    synced = member.sync()
    assert (error_of(synced), synced.assignment) == (Error.NONE, b"mine")
    assert member.heartbeat() is Error.NONE
    assert member.heartbeat(generation_id=7) is Error.ILLEGAL_GENERATION
    assert member.heartbeat(member_id="nobody") is Error.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_instance_id="nobody") is Error.UNKNOWN_MEMBER_ID

    def committed(generation: int, member_id: str) -> Error:
        by = {"generation_id_or_member_epoch": generation, "member_id": member_id}
        return commit(member.at, member.group, topic, **by)

    assert committed(1, member.id) is Error.NONE
    assert committed(2, member.id) is Error.ILLEGAL_GENERATION
    assert committed(1, "nobody") is Error.UNKNOWN_MEMBER_ID
    assert committed(-1, "") is Error.UNKNOWN_MEMBER_ID  # as an administrator would


def test_a_member_that_joins_makes_the_others_join_again(kafka: Subject) -> None:
    member = Member(kafka)
    assert error_of(member.sync()) is Error.NONE
    told = join(member.at, member.group)
    assert error_of(told) is Error.MEMBER_ID_REQUIRED
    assert member.heartbeat() is Error.NONE  # an id alone changes nothing
    leaving = [{"member_id": "nobody"}, {"member_id": member.id}]
    left = ask(member.at, LEAVE, 5, group_id=member.group, members=leaving)
    assert [error_of(one) for one in left.members] == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
    assert member.heartbeat() is Error.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"group_id": ""}, Error.INVALID_GROUP_ID),
        ({"session_timeout": 1}, Error.INVALID_SESSION_TIMEOUT),
        ({"session_timeout": 1 << 30}, Error.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocol_type": ""}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": []}, Error.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_a_join_that_makes_no_sense_is_refused(
    kafka: Subject, fields: dict[str, Any], expected: Error
) -> None:
    group = kafka.name()
    assert error_of(join(coordinator(kafka, group), group, **fields)) is expected


def test_members_of_another_kind_are_refused(kafka: Subject) -> None:
    member = Member(kafka)
    assert error_of(member.sync()) is Error.NONE
    for fields in (
        {"protocol_type": "connect"},
        {"protocols": [{"name": "other", "metadata": b""}]},
    ):
        refused = join(member.at, member.group, **fields)
        assert error_of(refused) is Error.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_that_is_not_there_has_no_members(kafka: Subject) -> None:
    group, topic = kafka.name(), kafka.topic()
    at = coordinator(kafka, group)
    by = {"group_id": group, "generation_id": 1, "member_id": "nobody"}
    assert error_of(ask(at, HEARTBEAT, 4, **by)) is Error.UNKNOWN_MEMBER_ID
    assert error_of(ask(at, SYNC, 5, **by)) is Error.INCONSISTENT_GROUP_PROTOCOL
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    assert error_of(ask(at, SYNC, 5, **by, **named)) is Error.UNKNOWN_MEMBER_ID
    left = ask(at, LEAVE, 5, group_id=group, members=[{"member_id": "nobody"}])
    assert [error_of(one) for one in left.members] == [Error.UNKNOWN_MEMBER_ID]
    member = {"generation_id_or_member_epoch": 1, "member_id": "nobody"}
    assert commit(at, group, topic, **member) is Error.ILLEGAL_GENERATION
    # Older clients took a group for dead that is not there (KIP-1043).
    for version, expected in ((5, Error.NONE), (6, Error.GROUP_ID_NOT_FOUND)):
        (said,) = ask(at, DESCRIBE_GROUPS, version, groups=[group]).groups
        assert (error_of(said), said.group_state) == (expected, "Dead")


def test_whoever_is_not_the_coordinator_says_so(kafka: Subject) -> None:
    group, topic = kafka.name(), kafka.topic()
    at = coordinator(kafka, group)
    for address in kafka.addresses():
        expected = Error.NONE if address == at else Error.NOT_COORDINATOR
        assert commit(address, group, topic) is expected
        (fetched,) = ask(address, OFFSET_FETCH, 8, groups=[{"group_id": group}]).groups
        assert error_of(fetched) is expected


def test_offsets_that_cannot_be_committed_are_refused(kafka: Subject) -> None:
    group, topic = kafka.name(), kafka.topic()
    at = coordinator(kafka, group)
    assert commit(at, group, topic, 9) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(at, group, kafka.name()) is Error.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(at, group, topic, metadata="x" * 4097) is Error.OFFSET_METADATA_TOO_LARGE
    assert commit(at, group, topic, metadata="x" * 4096) is Error.NONE


def test_offsets_are_deleted_unless_somebody_reads_the_topic(kafka: Subject) -> None:
    topic, other = kafka.topic(), kafka.topic()
    member = Member(kafka, topic)
    assert error_of(member.sync()) is Error.NONE
    by = {"generation_id_or_member_epoch": 1, "member_id": member.id}
    for name in (topic, other):
        assert commit(member.at, member.group, name, **by) is Error.NONE

    def delete(name: str, partition: int = 0) -> Error:
        topics = [{"name": name, "partitions": [{"partition_index": partition}]}]
        said = ask(member.at, OFFSET_DELETE, 0, group_id=member.group, topics=topics)
        return error_of(said) or error_of(said.topics[0].partitions[0])

    assert delete(topic) is Error.GROUP_SUBSCRIBED_TO_TOPIC
    assert delete(other) is Error.NONE
    (fetched,) = ask(
        member.at, OFFSET_FETCH, 8, groups=[{"group_id": member.group, "topics": None}]
    ).groups
    assert [one.name for one in fetched.topics] == [topic]
    nobody = ask(member.at, OFFSET_DELETE, 0, group_id=kafka.name(), topics=[])
    assert error_of(nobody) in (Error.GROUP_ID_NOT_FOUND, Error.NOT_COORDINATOR)


def test_members_of_the_new_protocol_are_known_by_id_and_epoch(kafka: Subject) -> None:
    group, topic = kafka.name(), kafka.topic(2)
    at = coordinator(kafka, group)

    def heartbeat(epoch: int, member: str = "me", **fields: Any) -> Any:
        asked = {"group_id": group, "member_id": member, "member_epoch": epoch}
        asked |= {"rebalance_timeout": -1, "subscribed_topic_names": None}
        asked |= {"topic_partitions": None, **fields}
        return ask(at, CONSUMER_HEARTBEAT, 1, **asked)

    joining = {
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    }
    assert error_of(heartbeat(0)) is Error.INVALID_REQUEST  # what does it want to read?
    assert error_of(heartbeat(0, server_assignor="none", **joining)) is Error.UNSUPPORTED_ASSIGNOR
    assert error_of(heartbeat(3)) is Error.GROUP_ID_NOT_FOUND
    said = [heartbeat(0, **joining)]
    assert (error_of(said[0]), said[0].member_epoch) == (Error.NONE, 1)

    def has_partitions() -> bool:
        """Kafka's coordinators may hear of a topic later than its brokers' clients."""
        last = said[-1]
        if last.assignment is not None and last.assignment.topic_partitions:
            return True
        said.append(heartbeat(last.member_epoch))
        return False

    assert wait_until(has_partitions, timeout_s=TIMEOUT_S)
    epoch = said[-1].member_epoch
    (assigned,) = said[-1].assignment.topic_partitions
    assert sorted(assigned.partitions) == [0, 1]
    assert error_of(heartbeat(epoch)) is Error.NONE
    assert error_of(heartbeat(epoch + 8)) is Error.FENCED_MEMBER_EPOCH
    assert error_of(heartbeat(epoch, "nobody")) is Error.UNKNOWN_MEMBER_ID

    def committed(epoch: int, member: str = "me") -> Error:
        one = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        one["committed_leader_epoch"] = -1
        by = {"group_id": group, "generation_id_or_member_epoch": epoch, "member_id": member}
        topics = [{"name": topic, "partitions": [one]}]
        answer = ask(at, OFFSET_COMMIT, 9, topics=topics, **by)
        return error_of(answer.topics[0].partitions[0])

    assert committed(epoch) is Error.NONE
    assert committed(epoch - 1) is Error.STALE_MEMBER_EPOCH
    assert committed(epoch, "nobody") is Error.UNKNOWN_MEMBER_ID
    classic = join(at, group, protocols=[{"name": "range", "metadata": b""}])
    assert error_of(classic) is CLASSIC_JOINS_CONSUMER.expected(kafka.engine)
    left = heartbeat(-1)
    assert (error_of(left), left.member_epoch) == (Error.NONE, -1)
    assert error_of(heartbeat(epoch)) is Error.UNKNOWN_MEMBER_ID


# Coordinators


@pytest.mark.parametrize(
    ("key_type", "key", "expected"), [(5, "x", Error.INVALID_REQUEST), (TRANSACTION, "", None)]
)
def test_a_coordinator_of_nothing_known_is_not_found(
    kafka: Subject, key_type: int, key: str, expected: Error | None
) -> None:
    asked = {"key_type": key_type, "coordinator_keys": [key]}
    (said,) = ask(kafka.addresses()[0], FIND_COORDINATOR, 4, **asked).coordinators
    assert expected is None or error_of(said) is expected


# Transactions


def init(address: str, name: str, **fields: Any) -> Any:
    """Once the broker has ids to give."""
    asked = {"transactional_id": name, "transaction_timeout": 10_000}
    asked |= {"producer_id": -1, "producer_epoch": -1, **fields}
    answers: list[Any] = []

    def is_answered() -> bool:
        answers.append(ask(address, INIT_PRODUCER_ID, 4, **asked))
        return error_of(answers[-1]) is not Error.COORDINATOR_LOAD_IN_PROGRESS

    assert wait_until(is_answered, timeout_s=TIMEOUT_S)
    return answers[-1]


def test_transactions_that_nobody_began_are_not_ended(kafka: Subject) -> None:
    name = kafka.name()
    at = coordinator(kafka, name, TRANSACTION)
    by = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    ended = ask(at, END_TXN, 3, committed=True, **by)
    assert error_of(ended) is Error.INVALID_PRODUCER_ID_MAPPING
    given = init(at, name)
    assert error_of(given) is Error.NONE
    by |= {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
    assert error_of(ask(at, END_TXN, 3, committed=True, **by)) is Error.INVALID_TXN_STATE
    old = {**by, "producer_epoch": given.producer_epoch + 1}
    assert error_of(ask(at, END_TXN, 3, committed=True, **old)) is Error.PRODUCER_FENCED
    other = next(address for address in kafka.addresses() if address != at)
    assert error_of(ask(other, END_TXN, 3, committed=True, **by)) is Error.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"transactional_id": ""}, Error.INVALID_REQUEST),
        ({"transaction_timeout": 1 << 30}, Error.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout": 0}, Error.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, Error.INVALID_REQUEST),
    ],
)
def test_a_producer_that_makes_no_sense_gets_no_id(
    kafka: Subject, fields: dict[str, Any], expected: Error
) -> None:
    name = kafka.name()
    at = coordinator(kafka, name, TRANSACTION)
    assert error_of(init(at, name, **fields)) is expected
