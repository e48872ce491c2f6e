"""An administrator's next request to the same broker sees the change that was answered before.

The broker hears of committed metadata late here, so every answer that does not wait for it is seen.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

import lossless
from lossless.core.error_codes import Error
from lossless.core.quorum_messages import QuorumFetch
from lossless.engines.local.in_process import InProcessCluster
from one_request import ask, error_of

METADATA, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 3, 19, 20, 37
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS = 29, 30, 31
DESCRIBE_CONFIGS, ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS = 32, 33, 44
ELECT_LEADERS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 45, 46
DESCRIBE_SCRAM, ALTER_SCRAM = 50, 51
TOPIC, BROKER = 2, 4
LATE_S = 0.05
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a broker that applies what is committed later than its controller does."""
    with lossless.cluster(brokers=1, config=CONFIG) as kafka:
        assert isinstance(kafka, InProcessCluster)
        broker = kafka._nodes[1].broker
        assert broker is not None
        send = broker.host._send

        def late(to: int, request: Any, answered: Any) -> None:
            if isinstance(request, QuorumFetch):
                loop = broker.host._loop
                send(to, request, lambda answer: loop.call_later(LATE_S, answered, answer))
            else:
                send(to, request, answered)

        broker.host._send = late
        yield kafka.bootstrap_servers


def create(address: str, name: str) -> Any:
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1}
    answer = ask(address, CREATE_TOPICS, 7, topics=[topic], timeout=10_000, validate_only=False)
    assert error_of(answer.topics[0]) is Error.NONE
    return answer.topics[0]


def described(address: str, name: str) -> Any:
    asked = [{"name": name, "topic_id": None}]
    answer = ask(address, METADATA, 12, topics=asked, allow_auto_topic_creation=False)
    return answer.topics[0]


def setting(address: str, kind: int, name: str, key: str) -> str | None:
    asked = [{"resource_type": kind, "resource_name": name, "configuration_keys": [key]}]
    answer = ask(address, DESCRIBE_CONFIGS, 4, resources=asked)
    (entry,) = answer.results[0].configs
    return None if entry.value is None else str(entry.value)


def test_topics_and_partitions_are_there_and_gone_at_once(address: str) -> None:
    created = create(address, "made")
    assert isinstance(created.topic_id, uuid.UUID)
    assert described(address, "made").topic_id == created.topic_id
    asked = {"name": "made", "count": 3, "assignments": None}
    more = {"topics": [asked], "timeout": 10_000, "validate_only": False}
    assert error_of(ask(address, CREATE_PARTITIONS, 3, **more).results[0]) is Error.NONE
    assert len(described(address, "made").partitions) == 3
    gone = ask(address, DELETE_TOPICS, 5, topic_names=["made"], timeout=10_000)
    assert error_of(gone.responses[0]) is Error.NONE
    assert error_of(described(address, "made")) is Error.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("api", [ALTER_CONFIGS, INCREMENTAL_ALTER_CONFIGS])
def test_settings_are_changed_at_once(address: str, api: int) -> None:
    topic = f"set-by-{api}"
    create(address, topic)
    changes = [(TOPIC, topic, "retention.ms", "9999")]
    if api == INCREMENTAL_ALTER_CONFIGS:  # the older API takes the cluster's minimum away
        changes.append((BROKER, "1", "log.retention.ms", "8888"))
        changes.append((BROKER, "", "min.insync.replicas", "1"))
    for kind, name, key, value in changes:
        config = {"name": key, "value": value}
        if api == INCREMENTAL_ALTER_CONFIGS:
            config["config_operation"] = 0  # type: ignore[assignment]
        asked = {"resource_type": kind, "resource_name": name, "configs": [config]}
        answer = ask(address, api, 1, resources=[asked], validate_only=False)
        assert error_of(answer.responses[0]) is Error.NONE
        assert setting(address, kind, name, key) == value


def test_access_is_granted_and_withdrawn_at_once(address: str) -> None:
    entry = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    wanted = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": "orders",
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    answer = ask(address, CREATE_ACLS, 3, creations=[entry])
    assert error_of(answer.results[0]) is Error.NONE
    assert len(ask(address, DESCRIBE_ACLS, 3, **wanted).resources) == 1
    answer = ask(address, DELETE_ACLS, 3, filters=[wanted])
    assert len(answer.filter_results[0].matching_acls) == 1
    assert ask(address, DESCRIBE_ACLS, 3, **wanted).resources == ()


def test_users_have_and_lose_their_credentials_at_once(address: str) -> None:
    def known() -> list[int]:
        answer = ask(address, DESCRIBE_SCRAM, 0, users=[{"name": "alice"}])
        return [int(one.mechanism) for one in answer.results[0].credential_infos]

    given = {"name": "alice", "mechanism": 1, "iterations": 4096}
    given |= {"salt": b"salt", "salted_password": b"p" * 32}
    answer = ask(address, ALTER_SCRAM, 0, deletions=[], upsertions=[given])
    assert error_of(answer.results[0]) is Error.NONE
    assert known() == [1]
    taken = {"name": "alice", "mechanism": 1}
    answer = ask(address, ALTER_SCRAM, 0, deletions=[taken], upsertions=[])
    assert error_of(answer.results[0]) is Error.NONE
    assert known() == []
