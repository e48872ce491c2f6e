"""What users may do, by access control entries, with real clients."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from secured import (
    _QUIET,
    PATIENCE_S,
    USERS,
    Raw,
    Settings,
    admin_of,
    error_code,
    login,
    received,
    result,
    send_error,
    sent,
)

from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.waiting import wait_until
from lossless.jars import jars
from lossless.jars.java import java
from topics import create_new

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE
ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
TOPIC_DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
CLUSTER_DENIED = KafkaError.CLUSTER_AUTHORIZATION_FAILED
EVERYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    None,
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


def entry(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    pattern: ResourcePatternType = LITERAL,
    permission: AclPermissionType = ALLOW,
    principal: str = "User:alice",
    host: str = "*",
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


class Access:
    """The cluster, its administrator, and alice, who may do nothing but what a test allows."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self._cluster = cluster
        servers = cluster.bootstrap_servers
        self.root: Settings = login(servers, "admin", USERS["admin"])
        self.alice: Settings = login(servers, "alice", USERS["alice"])
        self.admin = admin_of(self.root)

    def allow(self, *entries: AclBinding) -> None:
        for future in self.admin.create_acls(list(entries)).values():
            future.result(timeout=PATIENCE_S)
        self._agreed()

    def take_away(self, wanted: AclBindingFilter) -> int:
        taken = len(result(self.admin.delete_acls([wanted])))
        self._agreed()
        return taken

    def _agreed(self) -> None:
        """Every broker knows what the controller has answered."""
        nodes = list(self._cluster._nodes.values())
        (wanted,) = (
            set(node.controller.image.acls)
            for node in nodes
            if node.controller is not None and node.controller.machine.active is not None
        )
        brokers = [node.broker for node in nodes if node.broker is not None]
        assert wait_until(
            lambda: all(set(broker.image.acls) == wanted for broker in brokers),
            timeout_s=PATIENCE_S,
        )

    def topic(self, name: str, *values: str) -> str:
        create_new(self.admin, NewTopic(name, 1, 2))
        if values:
            assert sent(self.root, name, *values) == [None for _ in values]
        return name


@pytest.fixture
def access(guarded: InProcessCluster) -> Iterator[Access]:
    made = Access(guarded)
    yield made
    made.take_away(EVERYTHING)


def alone(act: Callable[[], object]) -> int:
    return error_code(act)


# Topics


def test_what_nobody_allows_is_denied(access: Access) -> None:
    topic = access.topic("denied", "a")
    assert send_error(access.alice, topic) == TOPIC_DENIED
    assert alone(lambda: received(access.alice, topic, 1, "denied")) in (
        TOPIC_DENIED,
        GROUP_DENIED,
    )


def test_who_may_write_may_not_read(access: Access) -> None:
    topic = access.topic("write-only")
    access.allow(entry(TOPIC, topic, WRITE), entry(GROUP, "g", READ))
    assert sent(access.alice, topic, "a") == [None]
    assert alone(lambda: received(access.alice, topic, 1, "g")) == TOPIC_DENIED
    assert received(access.root, topic, 1, "root-write-only") == ["a"]


def test_a_prefix_allows_topics_and_groups_that_begin_so(access: Access) -> None:
    topic = access.topic("shop-orders", "a", "b")
    other = access.topic("other-orders", "c")
    access.allow(
        entry(TOPIC, "shop-", READ, pattern=PREFIXED),
        entry(GROUP, "shop-", READ, pattern=PREFIXED),
    )
    assert received(access.alice, topic, 2, "shop-readers") == ["a", "b"]
    assert alone(lambda: received(access.alice, other, 1, "shop-readers-2")) == TOPIC_DENIED
    assert alone(lambda: received(access.alice, topic, 1, "my-readers")) == GROUP_DENIED


def test_what_is_denied_is_not_saved_by_what_is_allowed(access: Access) -> None:
    topic = access.topic("secret")
    access.allow(
        entry(TOPIC, "*", WRITE), entry(TOPIC, "sec", WRITE, pattern=PREFIXED, permission=DENY)
    )
    assert send_error(access.alice, topic) == TOPIC_DENIED
    assert sent(access.alice, access.topic("public"), "a") == [None]


def test_an_entry_for_another_host_does_not_count(access: Access) -> None:
    topic = access.topic("hosts")
    access.allow(entry(TOPIC, topic, WRITE, host="10.1.2.3"))
    assert send_error(access.alice, topic) == TOPIC_DENIED
    access.allow(entry(TOPIC, topic, WRITE, host="127.0.0.1"))
    assert sent(access.alice, topic, "a") == [None]


def test_of_two_topics_in_one_request_one_is_refused(access: Access) -> None:
    mine, theirs = access.topic("mine"), access.topic("theirs")
    access.allow(entry(TOPIC, mine, WRITE), entry(TOPIC, theirs, DESCRIBE))
    told: dict[str, KafkaError | None] = {}
    producer = Producer({**access.alice, "linger.ms": "50"}, logger=_QUIET)
    for topic in (mine, theirs):
        producer.produce(
            topic, "x", on_delivery=lambda error, said: told.update({said.topic(): error})
        )
    producer.flush(PATIENCE_S)
    assert told[mine] is None
    refused = told[theirs]
    assert refused is not None
    assert refused.code() == TOPIC_DENIED


def test_nobody_sees_topics_that_they_may_not_describe(access: Access) -> None:
    seen = access.topic("seen")
    access.topic("unseen")
    access.allow(entry(TOPIC, seen, DESCRIBE))
    alice = admin_of(access.alice)
    assert set(alice.list_topics(timeout=PATIENCE_S).topics) == {seen}
    unseen = alice.list_topics("unseen", timeout=PATIENCE_S).topics["unseen"]
    assert unseen.error is not None
    assert unseen.error.code() == TOPIC_DENIED
    assert {seen, "unseen"} <= set(access.admin.list_topics(timeout=PATIENCE_S).topics)


def test_a_topic_does_not_come_into_being_by_who_may_not_create_it(access: Access) -> None:
    access.allow(entry(TOPIC, "made-up", WRITE))
    assert send_error(access.alice, "made-up") == TOPIC_DENIED
    assert "made-up" not in access.admin.list_topics(timeout=PATIENCE_S).topics
    access.allow(entry(TOPIC, "made-up", AclOperation.CREATE))
    assert sent(access.alice, "made-up", "a") == [None]


def test_who_reads_is_stopped_when_the_right_is_taken_away(access: Access) -> None:
    topic = access.topic("revoked", "a")
    access.allow(entry(TOPIC, topic, READ), entry(GROUP, "revoked", READ))
    consumer = Consumer({**access.alice, "group.id": "revoked"}, logger=_QUIET)
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        first = consumer.poll(PATIENCE_S)
        assert first is not None
        assert first.error() is None
        access.take_away(AclBindingFilter(*_parts(entry(TOPIC, topic, READ))))
        sent(access.root, topic, "b")
        # A fetch that had come before may still be answered, and none that comes afterwards.
        polled = (consumer.poll(0.2) for _ in range(int(PATIENCE_S / 0.2)))
        errors = (one.error() for one in polled if one is not None)
        assert next(error for error in errors if error is not None).code() == TOPIC_DENIED
    finally:
        consumer.close()


def _parts(one: AclBinding) -> tuple[object, ...]:
    return (
        one.restype,
        one.name,
        one.resource_pattern_type,
        one.principal,
        one.host,
        one.operation,
        one.permission_type,
    )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_has_the_same_rights(access: Access) -> None:
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.errors import TopicAuthorizationFailedError

    readable, writable = access.topic("readable", "a"), access.topic("writable")
    access.allow(
        entry(TOPIC, readable, READ), entry(TOPIC, writable, WRITE), entry(GROUP, "snakes", READ)
    )
    settings = {
        "bootstrap_servers": access.alice["bootstrap.servers"].split(","),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": USERS["alice"],
    }
    producer = KafkaProducer(**settings)
    producer.send(writable, b"x").get(timeout=PATIENCE_S)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send(readable, b"x").get(timeout=PATIENCE_S)
    producer.close(timeout=1)
    consumer = KafkaConsumer(readable, group_id="snakes", auto_offset_reset="earliest", **settings)
    assert next(consumer).value == b"a"
    consumer.close()


# Groups, transactions, administration


def test_groups_that_may_not_be_described_are_not_listed(access: Access) -> None:
    topic = access.topic("grouped", "a")
    received(access.root, topic, 1, "group-seen")
    received(access.root, topic, 1, "group-unseen")
    access.allow(entry(GROUP, "group-seen", DESCRIBE))
    alice = admin_of(access.alice)
    listed = alice.list_consumer_groups().result(timeout=PATIENCE_S)
    assert {one.group_id for one in listed.valid} == {"group-seen"}


def test_a_group_is_deleted_by_who_may_delete_it(access: Access) -> None:
    topic = access.topic("group-deleted", "a")
    received(access.root, topic, 1, "doomed")
    alice = admin_of(access.alice)
    access.allow(entry(GROUP, "doomed", READ))
    denied = alone(lambda: result(alice.delete_consumer_groups(["doomed"])))
    assert denied == GROUP_DENIED
    access.allow(entry(GROUP, "doomed", AclOperation.DELETE))
    assert alone(lambda: result(alice.delete_consumer_groups(["doomed"]))) == 0


def test_a_transaction_needs_its_own_right(access: Access) -> None:
    topic = access.topic("transactional")
    access.allow(
        entry(TOPIC, topic, WRITE), entry(TRANSACTIONAL_ID, "tx-", WRITE, pattern=PREFIXED)
    )

    def transaction(name: str) -> None:
        producer = Producer({**access.alice, "transactional.id": name}, logger=_QUIET)
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(topic, name)
        producer.commit_transaction(PATIENCE_S)

    transaction("tx-1")
    assert alone(lambda: transaction("other")) == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert received(access.root, topic, 1, "root-transactional") == ["tx-1"]


def test_topics_are_administered_by_who_may(access: Access) -> None:
    alice = admin_of(access.alice)

    def created(name: str) -> int:
        return alone(lambda: result(alice.create_topics([NewTopic(name, 1, 1)])))

    def deleted(name: str) -> int:
        return alone(lambda: result(alice.delete_topics([name])))

    def grown(name: str, count: int) -> int:
        return alone(lambda: result(alice.create_partitions([NewPartitions(name, count)])))

    def described(name: str) -> int:
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        return alone(lambda: result(alice.describe_configs([resource])))

    access.allow(entry(TOPIC, "alices-", AclOperation.CREATE, pattern=PREFIXED))
    assert created("alices-own") == 0
    assert created("bobs-own") == TOPIC_DENIED
    assert grown("alices-own", 2) == TOPIC_DENIED
    assert described("alices-own") == TOPIC_DENIED
    assert deleted("alices-own") == TOPIC_DENIED
    access.allow(
        *(
            entry(TOPIC, "alices-", operation, pattern=PREFIXED)
            for operation in (
                AclOperation.ALTER,
                AclOperation.DELETE,
                AclOperation.DESCRIBE_CONFIGS,
            )
        )
    )
    assert grown("alices-own", 2) == 0
    assert described("alices-own") == 0
    assert deleted("alices-own") == 0


def test_rights_are_given_by_who_may_alter_the_cluster(access: Access) -> None:
    alice = admin_of(access.alice)
    own = entry(TOPIC, "*", AclOperation.ALL)
    assert alone(lambda: result(alice.create_acls([own]))) == CLUSTER_DENIED
    with Raw(access.alice["bootstrap.servers"].split(",")[0]) as raw:  # librdkafka hides it
        raw.log_in("alice")
        anything = {"resource_type_filter": 1, "operation": 1, "permission_type": 1}
        refused = raw.ask(29, 3, {**anything, "pattern_type_filter": 1})
        assert refused is not None
        assert refused.error_code.value == CLUSTER_DENIED
    assert alone(lambda: result(alice.delete_acls([EVERYTHING]))) == CLUSTER_DENIED
    access.allow(entry(CLUSTER, "kafka-cluster", AclOperation.ALTER))
    assert alone(lambda: result(alice.create_acls([own]))) == 0


def test_entries_are_described_and_taken_away_as_they_were_given(access: Access) -> None:
    given = [entry(TOPIC, "one", READ), entry(GROUP, "two", READ, pattern=PREFIXED)]
    access.allow(*given)
    described = access.admin.describe_acls(EVERYTHING).result(timeout=PATIENCE_S)
    assert set(described) == set(given)
    assert access.take_away(EVERYTHING) == 2
    assert access.admin.describe_acls(EVERYTHING).result(timeout=PATIENCE_S) == []


def test_kafkas_own_tool_gives_rights_and_lists_them(access: Access, tmp_path: Path) -> None:
    properties = tmp_path / "admin.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="admin" password="{USERS["admin"]}";\n'
    )
    ran = subprocess.run(
        [
            str(java()), "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, jars("kafka"))),
            "org.apache.kafka.tools.AclCommand",
            "--bootstrap-server", access.root["bootstrap.servers"],
            "--command-config", str(properties),
            "--add", "--allow-principal", "User:alice", "--producer", "--topic", "from-java",
        ],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert "operation=WRITE, permissionType=ALLOW" in ran.stdout
    access._agreed()
    assert sent(access.alice, "from-java", "a") == [None]


def test_a_super_user_needs_no_entries(access: Access) -> None:
    access.allow(entry(TOPIC, "*", AclOperation.ALL, permission=DENY, principal="User:*"))
    alice = admin_of(access.alice)
    with pytest.raises(KafkaException):
        result(alice.create_topics([NewTopic("supreme", 1, 1)]))
    assert sent(access.root, access.topic("supreme"), "a") == [None]
