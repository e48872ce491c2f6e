"""Who may use topics: their records, what is known of them, their settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from lossless.broker.security.rules import (
    CLUSTER_DENIED,
    GROUP_DENIED,
    TOPIC_DENIED,
    TRANSACTION_DENIED,
    Asking,
    Rule,
    Shape,
    Verdict,
    each,
    hiding,
    topic_refusal,
    visible_topic,
    with_message,
    without,
)
from lossless.core.admin_messages import ResourceKind
from lossless.core.messages import INTERNAL_TOPICS, Error
from lossless.core.security.acls import Operation
from lossless.wire import fetch, metadata
from lossless.wire.codec import Fields

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
DESCRIBE, CLUSTER_ACTION = Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS = Operation.DESCRIBE_CONFIGS

# Records


def produce_error(asking: Asking, topic: Any) -> Error | None:
    transaction = asking.message.transactional_id
    if transaction is not None and not asking.on_transaction(WRITE, transaction):
        return TRANSACTION_DENIED
    return topic_refusal(WRITE)(asking, topic)


PRODUCED = Shape(
    partitions="partition_data",
    number="index",
    told_partitions="partition_responses",
    told_number="index",
    told_besides={"base_offset": -1, "log_append_time": None},
)
_FETCHED = Shape(
    number="partition",
    name="topic",
    told_besides={
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "records": b"",
    },
)


def _fetch_error(asking: Asking, topic: Any) -> Error | None:
    state = getattr(asking.message, "replica_state", None)
    replica = asking.message.replica_id if state is None else state.replica_id
    if replica >= 0:
        return None if asking.on_cluster(CLUSTER_ACTION) else TOPIC_DENIED
    return topic_refusal(READ, "topic")(asking, topic)


_EACH_FETCHED = each("topics", "responses", _fetch_error, _FETCHED.told)
_NO_SESSION: dict[str, int] = {"session_id": 0, "session_epoch": -1}


def fetch_rule(asking: Asking) -> Verdict | None:
    message = asking.message
    if asking.version < fetch.SESSIONS:
        return _EACH_FETCHED(asking)
    if message.session_epoch > 0:
        return Verdict(None, {"error_code": Error.FETCH_SESSION_ID_NOT_FOUND})
    if any(getattr(message, name) != value for name, value in _NO_SESSION.items()):
        message = replace(message, **_NO_SESSION)
    verdict = _EACH_FETCHED(asking._replace(message=message))
    if verdict is None and message is not asking.message:
        return Verdict(message)
    return verdict


def epoch_error(asking: Asking, topic: Any) -> Error | None:
    if asking.on_cluster(CLUSTER_ACTION):
        return None
    return topic_refusal(DESCRIBE, "topic")(asking, topic)


# Topics


def metadata_rule(asking: Asking) -> Verdict | None:
    topics = asking.message.topics
    if topics is None or (asking.version == 0 and not topics):
        return _ALL_METADATA(asking)
    kept, refused = [], []
    for topic in topics:
        told = _metadata_refusal(asking, topic)
        if told is None:
            kept.append(topic)
        else:
            refused.append(told)
    if not refused:
        return None
    # Brokers are told in any case. In version 0 no topics stand for all of them.
    edit = without("topics", lambda _: False) if not kept else None
    return Verdict(replace(asking.message, topics=tuple(kept)), {"topics": refused}, edit)


_ALL_METADATA = hiding("topics", visible_topic)


def _metadata_refusal(asking: Asking, topic: Any) -> Fields | None:
    name = asking.topic_name(topic)
    if name is None:
        return None
    told: dict[str, Any] = {"name": name, "is_internal": name in INTERNAL_TOPICS}
    if not asking.on_topic(DESCRIBE, name):
        if topic.name is not None:
            return {**told, "error_code": TOPIC_DENIED}
        # Whoever knows only the id is not told that it is known to others.
        is_named = asking.version < metadata.BY_TOPIC_IDS
        error = Error.INVALID_REQUEST if is_named else Error.UNKNOWN_TOPIC_ID
        return {"name": "" if is_named else None, "topic_id": topic.topic_id, "error_code": error}
    may_create = asking.on_cluster(CREATE) or asking.on_topic(CREATE, name)
    if name not in asking.broker.image.topics and _is_created(asking) and not may_create:
        return {**told, "error_code": TOPIC_DENIED}
    return None


def _is_created(asking: Asking) -> bool:
    is_enabled = asking.broker.settings.topic_creation.auto_create_topics_enable
    return is_enabled and getattr(asking.message, "allow_auto_topic_creation", True)


def describe_partitions_rule(asking: Asking) -> Verdict | None:
    if asking.message.topics:
        return each("topics", "topics", topic_refusal(DESCRIBE), named)(asking)
    return _ALL_METADATA(asking)


def named(_asking: Asking, topic: Any, error: Error) -> Fields:
    return {"name": topic.name, "error_code": error}


def create_rule(asking: Asking) -> Verdict | None:
    """Whoever may not describe settings is not told what a new topic has."""
    verdict = _EACH_CREATED(asking)
    hidden = {
        topic.name
        for topic in asking.message.topics
        if not asking.on_topic(DESCRIBE_CONFIGS, topic.name)
    }
    if asking.version < 5 or not hidden or (verdict is not None and verdict.message is None):
        return verdict
    left = Verdict(asking.message) if verdict is None else verdict
    return left._replace(edit=partial(_without_configs, hidden))


def _without_configs(hidden: Iterable[str], answer: Any) -> Any:
    nothing = {
        "configs": None,
        "num_partitions": -1,
        "replication_factor": -1,
        "topic_config_error_code": TOPIC_DENIED.value,
    }
    return replace(
        answer,
        topics=tuple(
            replace(said, **nothing) if said.name in hidden and not said.error_code.value else said
            for said in answer.topics
        ),
    )


def _create_error(asking: Asking, topic: Any) -> Error | None:
    is_allowed = asking.on_cluster(CREATE) or asking.on_topic(CREATE, topic.name)
    return None if is_allowed else TOPIC_DENIED


def _not_created(_asking: Asking, topic: Any, error: Error) -> Fields:
    return {
        "name": topic.name,
        "error_code": error,
        "error_message": "Authorization failed.",
        "num_partitions": -1,
        "replication_factor": -1,
    }


_EACH_CREATED = each("topics", "topics", _create_error, _not_created)


def delete_rule(asking: Asking) -> Verdict | None:
    if asking.version >= 6:
        return each("topics", "responses", topic_refusal(DELETE), _not_deleted)(asking)
    return each("topic_names", "responses", _delete_error, _not_deleted_name)(asking)


def _delete_error(asking: Asking, name: str) -> Error | None:
    return None if asking.on_topic(DELETE, name) else TOPIC_DENIED


def _not_deleted_name(_asking: Asking, name: str, error: Error) -> Fields:
    return {"name": name, "error_code": error}


def _not_deleted(asking: Asking, topic: Any, error: Error) -> Fields:
    name = asking.topic_name(topic)
    is_told = topic.name is not None or (name is not None and asking.on_topic(DESCRIBE, name))
    return {
        "name": name if is_told else None,
        "topic_id": topic.topic_id,
        "error_code": error,
        "error_message": error.name,
    }


# Settings

_CLUSTER_SETTINGS = (
    ResourceKind.BROKER,
    ResourceKind.BROKER_LOGGER,
    ResourceKind.CLIENT_METRICS,
)


def _settings_error(operation: Operation, asking: Asking, resource: Any) -> Error | None:
    kind, name = resource.resource_type, resource.resource_name
    if kind == ResourceKind.TOPIC:
        return None if asking.on_topic(operation, name) else TOPIC_DENIED
    if kind == ResourceKind.GROUP:
        return None if asking.on_group(operation, name) else GROUP_DENIED
    if kind in _CLUSTER_SETTINGS:
        return None if asking.on_cluster(operation) else CLUSTER_DENIED
    return None  # there is no such resource, and whoever serves it says so


def settings_rule(operation: Operation, answer: str) -> Rule:
    def told(_asking: Asking, resource: Any, error: Error) -> Fields:
        return {
            **with_message(error),
            "resource_type": resource.resource_type,
            "resource_name": resource.resource_name,
        }

    return each("resources", answer, partial(_settings_error, operation), told)
