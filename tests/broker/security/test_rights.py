"""What each API needs, on both engines: rights.txt is the table, one right at a time.

`LOSSLESS_REWRITE=1 pytest tests/broker/security/test_rights.py` writes it, from Apache Kafka.
"""

from __future__ import annotations

import difflib
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from rights import CLOSED, NAME, Asked, Asker, filled, requests
from secured import USERS, admin_of, login, received, sent

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.in_process import InProcessCluster
from lossless.engines.local.planned import PlannedCluster
from lossless.engines.local.start import start_cluster
from lossless.engines.waiting import wait_until
from lossless.wire.codec import request_class
from lossless.wire.versions import APIS, BROKER
from topics import create_new

TABLE = Path(__file__).with_name("rights.txt")
CONFIG = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="admin-secret" '
        'user_admin="admin-secret" user_alice="alice-secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
}
OF = {
    "TOPIC": "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "GROUP": "READ DELETE DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS",
    "TRANSACTIONAL_ID": "DESCRIBE WRITE",
    "CLUSTER": "CREATE CLUSTER_ACTION DESCRIBE DESCRIBE_CONFIGS ALTER ALTER_CONFIGS "
    "IDEMPOTENT_WRITE",
}
EVERYTHING = "TOPIC:ALL GROUP:ALL TRANSACTIONAL_ID:ALL CLUSTER:ALL"
SINGLE = [f"{kind}:{operation}" for kind, text in OF.items() for operation in text.split()]
TOGETHER = [
    "TOPIC:READ GROUP:READ",
    "TOPIC:WRITE TRANSACTIONAL_ID:WRITE",
    "GROUP:READ TRANSACTIONAL_ID:WRITE",
    "GROUP:READ TOPIC:READ TRANSACTIONAL_ID:WRITE",
    EVERYTHING,
]
KINDS = {kind: ResourceType.BROKER if kind == "CLUSTER" else ResourceType[kind] for kind in OF}
# Kafka tells everybody who may describe a topic that there is none to delete. The controller of an
# embedded cluster may know a topic that the broker, which looks at rights, has not heard of yet.
_DELETION = "delete_topics: TOPIC_AUTHORIZATION_FAILED\n    served: "
_DESCRIBING = "TOPIC:READ, TOPIC:WRITE, TOPIC:DELETE, TOPIC:ALTER, TOPIC:DESCRIBE, TOPIC:READ "
_DESCRIBING += "GROUP:READ, TOPIC:WRITE TRANSACTIONAL_ID:WRITE, GROUP:READ TOPIC:READ "
_DESCRIBING += "TRANSACTIONAL_ID:WRITE"
STRICTER = (
    f"{_DELETION}TOPIC:DELETE, everything\n",
    f"{_DELETION}{_DESCRIBING}, everything\n",
)
ANYTHING = AclBindingFilter(
    ResourceType.ANY,
    None,
    ResourcePatternType.ANY,
    "User:alice",
    None,
    AclOperation.ANY,
    AclPermissionType.ANY,
)


@contextmanager
def running(engine: str, folder: Path) -> Iterator[PlannedCluster]:
    spec = ClusterSpec(brokers=1, config=CONFIG)
    if engine == "embedded":
        cluster: PlannedCluster = InProcessCluster(spec)
    else:
        cluster = start_cluster(spec, folder / "kafka", engine=engine, temporary=True)
    try:
        yield cluster
    finally:
        cluster.stop()


def allow(admin: AdminClient, rights: str) -> None:
    """These, and no others, once the broker goes by them."""
    wanted = [
        AclBinding(
            KINDS[kind],
            "kafka-cluster" if kind == "CLUSTER" else "*",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation[operation],
            AclPermissionType.ALLOW,
        )
        for kind, _, operation in (right.partition(":") for right in rights.split())
    ]
    for taken in admin.delete_acls([ANYTHING]).values():
        taken.result()
    for made in admin.create_acls(wanted).values() if wanted else ():
        made.result()
    assert wait_until(
        lambda: set(admin.describe_acls(ANYTHING).result()) == set(wanted), timeout_s=30
    )


def table_of(cluster: PlannedCluster) -> str:
    """For each request what happens without any right, and the rights that change it."""
    admin = admin_of(login(cluster.bootstrap_servers, "admin", USERS["admin"], "PLAIN"))
    topic_id = prepared(admin, cluster.bootstrap_servers)
    alice = Asker(cluster.bootstrap_servers, "alice", USERS["alice"])
    asked = requests(topic_id)
    outcomes: dict[str, dict[str, list[str]]] = {one.label: {} for one in asked}
    for rights in ("", *SINGLE, *TOGETHER):
        allow(admin, rights)
        for one in asked:
            outcomes[one.label].setdefault(alice.outcome(one), []).append(rights)
    alice.close()
    lines = []
    for label, found in outcomes.items():
        without, *others = found
        lines.append(f"{label}: {without}")
        for what in others:
            rights = ["everything" if one == EVERYTHING else one for one in found[what]]
            lines.append(f"    {what}: {', '.join(rights)}")
    return "\n".join(lines) + "\n"


def prepared(admin: AdminClient, servers: str) -> uuid.UUID:
    """A topic with a record, and a group that has read it."""
    create_new(admin, NewTopic(NAME, 1, 1))
    root = login(servers, "admin", USERS["admin"], "PLAIN")
    assert sent(root, NAME, "value") == [None]
    assert received(root, NAME, 1, NAME) == ["value"]
    found = admin.describe_topics(TopicCollection([NAME]))[NAME].result().topic_id
    parts = (found.get_most_significant_bits(), found.get_least_significant_bits())
    high, low = (part & ((1 << 64) - 1) for part in parts)
    return uuid.UUID(int=high << 64 | low)


OF_NODES = [api for api in APIS.values() if not api.listeners & BROKER]


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.full)])
def test_clients_cannot_send_what_only_nodes_send_to_controllers(
    engine: str, tmp_path: Path
) -> None:
    """AlterPartition, Envelope, BrokerRegistration, votes …: the brokers' listener has none."""
    assert {"alter_partition", "envelope", "broker_registration", "vote"} <= {
        api.name for api in OF_NODES
    }
    with running(engine, tmp_path) as cluster:
        for user in ("alice", "admin"):
            asker = Asker(cluster.bootstrap_servers, user, USERS[user])
            for api in OF_NODES:
                message = filled(request_class(api.key, api.highest), uuid.uuid4())
                asked = Asked(api.name, api.key, api.highest, message)
                assert asker.outcome(asked) == CLOSED, api.name
            asker.close()


@pytest.mark.parametrize("engine", ["embedded", pytest.param("apache", marks=pytest.mark.full)])
def test_every_api_needs_the_rights_of_the_table(engine: str, tmp_path: Path) -> None:
    with running(engine, tmp_path) as cluster:
        found = table_of(cluster)
    if engine == "apache" and os.environ.get("LOSSLESS_REWRITE"):
        TABLE.write_text(found)
    if engine == "embedded":
        found = found.replace(*STRICTER)
    lines = (TABLE.read_text().splitlines(), found.splitlines())
    differences = list(difflib.unified_diff(*lines, "table", engine, lineterm=""))
    assert not differences, "\n".join(differences)
