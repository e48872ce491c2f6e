"""What a cluster says about itself, read through confluent-kafka.

Every look-up uses a client of its own, which knows nothing but the address it was given: a client
that lives longer may ask a broker that is paused or dead, and wait for it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, PartitionMetadata

from lossless.contract import TopicContract, librdkafka_settings
from lossless.errors import BadInput, Unavailable

# librdkafka writes every refused connection to stderr; what matters is in the error we raise.
_SILENT = logging.getLogger("lossless.engines.librdkafka")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


# librdkafka connects again and again; between two looks at what it complained about.
LOOK_S = 0.5
_MAY_PASS = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def _is_refusal(complaint: KafkaError) -> bool:
    """Whether a login or a certificate was refused, which no second attempt changes."""
    return complaint.code() == KafkaError._AUTHENTICATION or "certificate" in complaint.str()


def read_metadata(settings: Mapping[str, str], *, timeout_s: float = 5.0) -> ClusterMetadata:
    """Brokers, topics, leaders and in-sync replicas. `settings` by the Java client's names.

    Raises Unavailable after `timeout_s`, or as soon as a login or a certificate is refused.
    """
    complaints: list[KafkaError] = []
    client = _client(settings, complaints)
    deadline = time.monotonic() + timeout_s
    while True:
        left_s = deadline - time.monotonic()
        try:
            # All topics, since asking for one by name can create it.
            return client.list_topics(timeout=max(0.0, min(left_s, LOOK_S)))
        except KafkaException as error:
            client.poll(0)  # hands over what was complained about meanwhile
            is_over = left_s <= LOOK_S or error.args[0].code() not in _MAY_PASS
            if is_over or any(map(_is_refusal, complaints)):
                raise _unreachable(settings, [*complaints, error.args[0]]) from error


def read_partition(
    settings: Mapping[str, str], topic: str, partition: int, *, timeout_s: float = 5.0
) -> PartitionMetadata:
    return partition_of(read_metadata(settings, timeout_s=timeout_s), topic, partition)


def partition_of(metadata: ClusterMetadata, topic: str, partition: int) -> PartitionMetadata:
    topics = metadata.topics
    if topic not in topics:
        known = ", ".join(sorted(name for name in topics if not name.startswith("__"))) or "none"
        raise BadInput(f"there is no topic {topic!r}", hint=f"topics there are: {known}")
    partitions = topics[topic].partitions
    if partition not in partitions:
        raise BadInput(
            f"topic {topic!r} has partitions 0 to {len(partitions) - 1}, not {partition}"
        )
    return partitions[partition]


def create_topics(
    settings: Mapping[str, str], topics: Iterable[TopicContract], *, replication_factor_max: int
) -> list[str]:
    """Creates the topics that are not there yet and returns their names."""
    existing = read_metadata(settings).topics
    client = _client(settings, [])
    missing = [
        NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=min(topic.replication_factor, replication_factor_max),
            config=dict(topic.config),
        )
        for topic in topics
        if topic.name not in existing
    ]
    if not missing:
        return []
    created = []
    for name, future in client.create_topics(missing, operation_timeout=30).items():
        try:
            future.result()
        except KafkaException as error:
            reason = error.args[0]
            if reason.code() == KafkaError.TOPIC_ALREADY_EXISTS:  # somebody else was faster
                continue
            is_answer = reason.code() >= 0 and not reason.retriable()
            kind = BadInput if is_answer else Unavailable
            raise kind(f"topic {name!r} cannot be created: {reason.str()}") from error
        created.append(name)
    return created


def _client(settings: Mapping[str, str], complaints: list[KafkaError]) -> AdminClient:
    quiet: dict[str, Any] = {
        "logger": _SILENT,
        "error_cb": complaints.append,
        "client.id": "lossless",
        "reconnect.backoff.max.ms": 500,
        "socket.connection.setup.timeout.ms": 3000,
    }
    try:
        return AdminClient({**librdkafka_settings(settings), **quiet})
    except KafkaException as error:
        raise BadInput(f"the client's settings are refused: {error.args[0].str()}") from error


def _unreachable(settings: Mapping[str, str], complaints: list[KafkaError]) -> Unavailable:
    # "Timed out" and "all brokers down" follow from the first cause, which says more.
    vague = {KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
    telling = [error for error in complaints if error.code() not in vague]
    if telling or complaints[0].code() != KafkaError._ALL_BROKERS_DOWN:
        reason = (telling or complaints)[0].str()
    else:  # librdkafka's text only counts brokers
        reason = "brokers close connections without an answer"
    address = settings.get("bootstrap.servers", "(no address)")
    if telling and telling[0].code() == KafkaError._AUTHENTICATION:
        user = librdkafka_settings(settings).get("sasl.username")
        return Unavailable(
            f"Kafka at {address} refused the login{f' of {user}' if user else ''}: {reason}",
            hint="check the user, the password and sasl.mechanism in the client's settings",
        )
    return Unavailable(
        f"Kafka at {address} cannot be reached: {reason}",
        hint="is it running, and do security.protocol and the credentials fit the listener?",
    )
