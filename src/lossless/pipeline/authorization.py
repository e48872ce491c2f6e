"""Rights that Kafka denies: found before Spark starts, and recognised in what a job failed with.

A denied right does not come back by itself, so that a pipeline that lacks one ends at once. The
message names the right, the resource and the principal, which is what an administrator needs to
grant it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence

from confluent_kafka import OFFSET_END, Consumer, KafkaError, TopicPartition

from lossless.contract import librdkafka_settings
from lossless.errors import BadInput

CHECK_S_MAX = 5.0

# How Kafka's Java client words a denial, whichever exception Spark wraps around it.
_DENIED_TOPICS = re.compile(r"Not authorized to access topics: \[([^\]\n]*)\]")
_DENIED_GROUP = re.compile(r"Not authorized to access group: (\S+)")
_DENIED_CLUSTER = re.compile(r"\bClusterAuthorizationException: ([^\n]*)")
_DENIED_LOGIN = re.compile(r"\bSaslAuthenticationException: ([^\n]*)")


def denied(right: str, resource: str, client_settings: Mapping[str, str]) -> BadInput:
    """`resource` is what the right is missing on: "topic orders", "group shop", "cluster"."""
    principal = principal_of(client_settings)
    return BadInput(
        f"Kafka denies {principal} the right {right} on {resource}",
        hint=f"grant it: kafka-acls.sh --add --allow-principal '{principal}' "
        f"--operation {right.capitalize()} --{resource}",
    )


def principal_of(client_settings: Mapping[str, str]) -> str:
    """How the brokers call a client with these settings, as far as the settings say."""
    settings = librdkafka_settings(client_settings)
    if user := settings.get("sasl.username"):
        return f"User:{user}"
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol.startswith("SASL"):
        return f"the user that logs in by {settings.get('sasl.mechanism', 'GSSAPI')}"
    if protocol == "SSL":
        return "the subject of the client's certificate"
    return "User:ANONYMOUS"


def require_read(client_settings: Mapping[str, str], topics: Sequence[str]) -> None:
    """Fetches from the end of a partition of each topic. BadInput where that is denied.

    A broker that does not answer in time leaves the question open: the pipeline will find out.
    """
    if not topics:
        return
    consumer = Consumer(
        {
            **librdkafka_settings(client_settings),
            "group.id": "lossless-check-of-rights",  # never joined, never committed to
            "enable.auto.commit": "false",
            "enable.partition.eof": "true",
            "isolation.level": "read_uncommitted",
            "fetch.wait.max.ms": "10",
            "log_level": "0",
        }
    )
    unanswered = set(topics)
    deadline = time.monotonic() + CHECK_S_MAX
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_END) for topic in topics])
        while unanswered and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            error = message.error()
            if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise denied("READ", f"topic {message.topic()}", client_settings)
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                unanswered.discard(str(message.topic()))
    finally:
        consumer.close()


def denial_in(problem: BaseException, client_settings: Mapping[str, str]) -> BadInput | None:
    """The denied right that made a Spark job fail; None when it failed for another reason."""
    for text in _texts(problem):
        if found := _DENIED_TOPICS.search(text):
            return denied("READ", f"topic {found[1]}", client_settings)
        if found := _DENIED_GROUP.search(text):
            return denied("READ", f"group {found[1]}", client_settings)
        if found := _DENIED_CLUSTER.search(text):
            return BadInput(f"Kafka denies {principal_of(client_settings)}: {found[1]}")
        if found := _DENIED_LOGIN.search(text):
            return BadInput(
                f"Kafka refuses the login of {principal_of(client_settings)}: {found[1]}",
                hint="check the client settings sasl.mechanism and sasl.jaas.config",
            )
    return None


def _texts(problem: BaseException) -> Iterator[str]:
    """What an exception and its causes say, on both sides of py4j."""
    seen: set[int] = set()
    current: BaseException | None = problem
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield str(current)
        yield str(getattr(current, "_stackTrace", None) or "")
        # PySpark keeps the Java cause of what it converted beside Python's own.
        current = current.__cause__ or getattr(current, "_cause", None)
