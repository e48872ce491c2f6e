"""Rights that Kafka denies: named before Spark starts, or once a running pipeline loses one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
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

from lossless.engines.interface import ClusterSpec
from lossless.engines.local.in_process import InProcessCluster
from lossless.errors import BadInput
from lossless.pipeline.authorization import denial_in, principal_of, require_read
from lossless.pipeline.events import Committed, Event, Retrying
from lossless.pipeline.pipeline import Pipeline
from lossless.pipeline.sinks.interface import SinkUnavailable
from lossless.pipeline.source import SourceLog
from shop import order
from topics import create_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 60.0
READ, DESCRIBE = AclOperation.READ, AclOperation.DESCRIBE
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def login(servers: str, user: str) -> dict[str, str]:
    """By the Java client's names."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} username="{user}" password="{user}-secret";',
    }


class Guarded:
    """A cluster whose topics only `admin` may use, until `alice` is granted rights."""

    def __init__(self, cluster: InProcessCluster) -> None:
        self.settings = login(cluster.bootstrap_servers, "alice")
        self.root = {
            **{k: v for k, v in self.settings.items() if k != "sasl.jaas.config"},
            "sasl.username": "admin",
            "sasl.password": "admin-secret",
            "log_level": "0",
        }
        self.admin = AdminClient(self.root)

    def topic(self, name: str) -> str:
        create_new(self.admin, NewTopic(name, 1, 1))
        return name

    def produce(self, topic: str, numbers: range) -> None:
        producer = Producer(self.root)
        for number in numbers:
            producer.produce(topic, order(number))
        assert producer.flush(PATIENCE_S) == 0

    def grant(self, topic: str, *rights: AclOperation) -> None:
        entries = [
            AclBinding(
                ResourceType.TOPIC,
                topic,
                ResourcePatternType.LITERAL,
                "User:alice",
                "*",
                right,
                AclPermissionType.ALLOW,
            )
            for right in rights
        ]
        for future in self.admin.create_acls(entries).values():
            future.result(PATIENCE_S)

    def revoke(self, topic: str, right: AclOperation) -> None:
        entry = AclBindingFilter(
            ResourceType.TOPIC,
            topic,
            ResourcePatternType.LITERAL,
            None,
            None,
            right,
            AclPermissionType.ANY,
        )
        for future in self.admin.delete_acls([entry]).values():
            future.result(PATIENCE_S)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    config = {
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "lossless.sasl.users": "admin:admin-secret,alice:alice-secret",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} username="admin" password="admin-secret";'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    cluster = InProcessCluster(ClusterSpec(brokers=1, config=config))
    yield Guarded(cluster)
    cluster.stop()


def test_a_topic_without_the_right_to_describe_it_is_not_called_missing(guarded: Guarded) -> None:
    topic = guarded.topic("hidden")
    with pytest.raises(BadInput, match=f"denies User:alice the right DESCRIBE on topic {topic}"):
        SourceLog(guarded.settings).topics([topic])


def test_the_right_to_read_is_checked_before_spark_starts(guarded: Guarded) -> None:
    topic = guarded.topic("described")
    guarded.grant(topic, DESCRIBE)
    assert SourceLog(guarded.settings).topics([topic]) == [topic]
    with pytest.raises(BadInput, match=f"denies User:alice the right READ on topic {topic}"):
        require_read(guarded.settings, [topic])
    guarded.grant(topic, READ)
    require_read(guarded.settings, [topic])


def test_a_right_taken_away_ends_a_running_pipeline_within_seconds(
    guarded: Guarded, spark: SparkSession, tmp_path: Path
) -> None:
    topic = guarded.topic("withdrawn")
    guarded.grant(topic, DESCRIBE, READ)
    guarded.produce(topic, range(10))
    settings = "\n".join(f"client.{name} = {value!r}" for name, value in guarded.settings.items())
    (tmp_path / "lossless.toml").write_text(
        f"""
[cluster]
{settings}
[pipelines.orders]
topics = ["{topic}"]
format = "json"
schema = "number BIGINT NOT NULL, text STRING"
trigger_s = 0.1
[pipelines.orders.sink]
type = "delta"
path = "./table"
"""
    )
    pipeline = Pipeline("orders", contract=tmp_path / "lossless.toml", spark=spark)
    revoked_at: list[float] = []
    retries: list[str] = []

    def revoke(event: Event) -> None:
        if isinstance(event, Committed) and not revoked_at:
            guarded.revoke(topic, READ)
            guarded.produce(topic, range(10, 20))
            revoked_at.append(time.monotonic())
        elif isinstance(event, Retrying):
            retries.append(event.why)

    with pytest.raises(BadInput, match=f"denies User:alice the right READ on topic {topic}"):
        pipeline.run(observe=revoke)
    assert time.monotonic() - revoked_at[0] < PATIENCE_S  # `retry_max_s` is 300
    assert retries == []


def test_a_denial_is_found_behind_the_sink_that_reported_the_failed_job() -> None:
    job = RuntimeError("TopicAuthorizationException: Not authorized to access topics: [orders]")
    problem = SinkUnavailable("staging rows for the delta table failed")
    problem.__cause__ = job
    found = denial_in(problem, {"bootstrap.servers": "127.0.0.1:9092"})
    assert found is not None
    assert found.what == "Kafka denies User:ANONYMOUS the right READ on topic orders"
    assert denial_in(SinkUnavailable("disk full"), {}) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Not authorized to access group: shop", "the right READ on group shop"),
        ("ClusterAuthorizationException: Cluster authorization failed.", "Cluster authorization"),
        ("SaslAuthenticationException: Authentication failed", "refuses the login of User:alice"),
    ],
)
def test_every_lasting_denial_is_recognised(text: str, says: str) -> None:
    found = denial_in(RuntimeError(text), login("127.0.0.1:1", "alice"))
    assert found is not None
    assert says in found.what


def test_a_principal_is_named_as_far_as_the_settings_tell() -> None:
    assert principal_of(login("127.0.0.1:1", "alice")) == "User:alice"
    assert principal_of({"security.protocol": "SSL"}) == "the subject of the client's certificate"
    assert "GSSAPI" in principal_of({"security.protocol": "SASL_SSL"})
