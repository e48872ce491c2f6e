"""The audit topic may not be written: records are delivered all the same, and the log says so."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from lossless.acknowledged import AUDIT_TOPIC
from lossless.client.producing import reporting
from lossless.client.producing.producer import Producer
from lossless.engines import cluster
from lossless.engines.waiting import wait_until
from topics import create_new

PATIENCE_S = 30
CONFIG = {
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "lossless.sasl.users": "admin:admin-secret,shop:shop-secret",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="admin" password="admin-secret";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "auto.create.topics.enable": "false",
}
# Each has a report of its own, and they are sent while the producer runs.
MINUTES_THAT_ARE_OVER_MS = (1_700_000_000_000, 1_700_000_060_000)
REFUSED = "what is acknowledged is no longer reported to the audit"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster where the shop may write its orders, and nothing else but what a test allows."""

    servers: str

    def login(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
        }

    def create(self, topic: str) -> None:
        create_new(AdminClient(self.login("admin")), NewTopic(topic, 1, 1))

    def allow(self, topic: str, operation: AclOperation) -> None:
        admin = AdminClient(self.login("admin"))
        binding = AclBinding(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            "User:shop",
            "*",
            operation,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([binding])[binding].result(PATIENCE_S)

    def stored(self, topic: str) -> int:
        asking = Consumer({**self.login("admin"), "group.id": "asking"})
        try:
            _, end = asking.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
            return int(end)
        finally:
            asking.close()


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    with cluster(brokers=1, config=CONFIG) as started:
        yield Guarded(started.bootstrap_servers)


@pytest.fixture
def orders(guarded: Guarded) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    guarded.create(name)
    guarded.allow(name, AclOperation.WRITE)
    return name


@pytest.mark.parametrize(
    ("made", "allowed", "reason"),
    [
        (False, AclOperation.DESCRIBE, "cannot be made"),
        (True, None, "cannot be described"),
        (True, AclOperation.DESCRIBE, "Topic authorization failed"),
    ],
    ids=["not to be made", "not to be seen", "not to be written"],
)
def test_records_are_delivered_though_nobody_may_report_them(
    guarded: Guarded,
    orders: str,
    made: bool,
    allowed: AclOperation | None,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if made:
        guarded.create(AUDIT_TOPIC)
    if allowed is not None:
        guarded.allow(AUDIT_TOPIC, allowed)
    monkeypatch.setattr(reporting, "INTERVAL_S", 0.1)  # not only when the producer closes
    with Producer(guarded.login("shop"), application="shop") as producer:
        sent = [
            producer.send(orders, b"v", key=b"k", timestamp_ms=minute_ms)
            for minute_ms in MINUTES_THAT_ARE_OVER_MS
            for _ in range(50)
        ]
        assert wait_until(lambda: REFUSED in caplog.text, timeout_s=PATIENCE_S)
        sent += [producer.send(orders, b"v", key=b"k") for _ in range(100)]
    assert [delivery.result(0).offset for delivery in sent] == list(range(200))
    assert producer.metrics.acknowledged == 200
    (told,) = [record for record in caplog.records if REFUSED in record.getMessage()]
    assert told.levelname == "WARNING"
    assert AUDIT_TOPIC in told.getMessage()
    assert reason in told.getMessage()
    assert "grant this user WRITE on it, or give audit=False" in told.getMessage()
    if made:
        assert guarded.stored(AUDIT_TOPIC) == 0


def test_a_producer_that_is_soon_over_says_when_it_closes_that_nothing_was_reported(
    guarded: Guarded, orders: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.create(AUDIT_TOPIC)
    guarded.allow(AUDIT_TOPIC, AclOperation.DESCRIBE)
    producer = Producer(guarded.login("shop"), application="shop")
    assert producer.send(orders, b"v").result(PATIENCE_S).offset == 0
    assert REFUSED not in caplog.text
    producer.close()  # raises nothing: the record is safe
    assert REFUSED in caplog.text
